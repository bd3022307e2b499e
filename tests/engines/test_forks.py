"""Forked processes, such as workers of a DataLoader: ops work, layers on fields say what to do, nothing hangs."""

import gc
import hashlib
import subprocess
import sys
import threading

import pytest
import torch

import tinsmith as ts
from support.forked import run_forked
from tinsmith.engines import COMPILING, init

pytestmark = pytest.mark.each_engine
D = torch.float64
N = 100_000


def make_op(lang):
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] + 1.0

    return square


def pull(function, size=N):
    x = torch.full((size,), 3.0, dtype=D, requires_grad=True)
    y = function(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return y[0].item(), gradient[0].item()


def test_whatever_launches_works_in_a_fork(lang64):
    """The parent has run all of it on several threads, so its threads are waited for if anything of it is used."""
    square = make_op(lang64)
    op = ts.op("x[n] -> y[n]")(square)
    new = ts.op("x[n] -> y[n]")(make_op(lang64))
    chain = ts.chain("x[n] -> z[n]", [op, ts.op("y[n] -> z[n]")(_rename(lang64))], scratch="y[n]")
    checked = ts.op("x[n] -> y[n]", check_bounds=True)(square)
    tube = ts.Tube().register_input_tensor((8,), D, "x").register_output_tensor((8,), D, "y", True)
    tube = tube.register_kernel(_on_fields(lang64), ["x", "y"]).finish()
    network = ts.nn.Encoding(2, {"otype": "Frequency", "n_frequencies": 2}, dtype=D)
    pending = torch.full((N,), 3.0, dtype=D, requires_grad=True)
    output = op(pending).sum()

    def work():
        yield pull(op)
        yield pull(new)
        yield pull(chain)
        yield pull(checked, 10)
        yield pull(tube, 8)
        yield torch.autograd.grad(output, pending, retain_graph=True)[0][0].item()
        yield torch.func.vmap(op)(torch.full((2, 10), 3.0, dtype=D))[1, 1].item()
        yield ts.scan(lambda carry, _: (op(carry), carry), torch.zeros(3, dtype=D), length=2)[0].tolist()
        yield network(torch.full((10, 2), 0.25, dtype=D)).sum().item()

    def run():
        return list(work())

    here = run()
    assert here[0] == (10.0, 6.0)
    assert run_forked(run) == str(here)
    assert run_forked(lambda: run_forked(lambda: pull(op))) == str(here[0])


def _rename(lang):
    @lang.kernel
    def double(y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in y:
            z[i] = 2.0 * y[i]

    return double


def _on_fields(lang):
    @lang.kernel
    def double(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = 2.0 * x[i]

    return double


def test_fields_are_refused_in_a_fork(lang64):
    x = lang64.field(lang64.f64, 8, needs_grad=True)
    y = lang64.field(lang64.f64, 8, needs_grad=True)

    @lang64.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    @lang64.kernel
    def scaled(a: lang64.types.ndarray(), b: lang64.types.ndarray()):
        for i in a:
            b[i] = x[i] * a[i]

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(double).finish()
    rollout = ts.rollout(double, {"x": x}, {"y": y})
    op = ts.op("a[n] -> b[n]")(scaled)
    for one in (layer, rollout, op):
        one(torch.ones(8, dtype=D))
        words = run_forked(lambda one=one: one(torch.ones(8, dtype=D)))
        assert words.startswith("EngineError: "), words
        assert "This process was forked, and fields do not survive a fork." in words
        assert 'multiprocessing_context="spawn"' in words


def test_an_op_asks_nothing_of_openssl(lang64, monkeypatch):
    """Its locks may be taken at a fork: Taichi opens a TLS connection in a thread when it is imported."""
    for name in ("md5", "sha1", "sha256", "sha512"):
        monkeypatch.setattr(hashlib, name, lambda *_, **__: pytest.fail("a digest by OpenSSL"))
    assert pull(ts.op("x[n] -> y[n]")(make_op(lang64))) == (10.0, 6.0)


def test_an_engine_may_be_started_in_a_fork(lang64, engine):
    op = ts.op("x[n] -> y[n]")(make_op(lang64))
    assert pull(op) == (10.0, 6.0)

    def start():
        init("cpu", engine, default_fp=lang64.f32)
        return op(torch.full((2,), 3.0)).tolist()

    assert run_forked(start) == "[10.0, 10.0]"

    def start_directly():
        lang64.init(arch=lang64.cpu)
        return op(torch.full((2,), 3.0)).tolist()

    assert run_forked(start_directly) == "[10.0, 10.0]"


def test_a_fork_waits_for_what_another_thread_compiles(lang64):
    op = ts.op("x[n] -> y[n]")(make_op(lang64))
    began, forked = threading.Event(), threading.Event()

    def compile_slowly():
        with COMPILING:
            began.set()
            assert not forked.wait(0.2)

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    began.wait()
    words = run_forked(lambda: (forked.set(), pull(op))[1])
    forked.set()
    thread.join()
    assert words == "(10.0, 6.0)"


def test_a_program_of_an_earlier_start_is_not_destroyed_in_a_fork(lang64, engine):
    """Its destructor waits for threads that the fork does not have."""
    pull(ts.op("x[n] -> y[n]")(make_op(lang64)))
    programs = [lang64.lang.impl.get_runtime().prog]
    lang64.reset()
    init("cpu", engine=engine, default_fp=lang64.f64)
    gc.collect()  # nothing else refers to it

    def start_again_and_forget():
        result = pull(ts.op("x[n] -> y[n]")(make_op(lang64)))
        programs.clear()
        return result

    assert run_forked(start_again_and_forget) == "(10.0, 6.0)"


class Squares(torch.utils.data.Dataset):
    def __init__(self, op):
        self.op = op

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.op(torch.full((N,), 1.0 + index, dtype=D))


def test_workers_of_a_data_loader(lang64):
    op = ts.op("x[n] -> y[n]")(make_op(lang64))
    op(torch.ones(N, dtype=D))
    loader = torch.utils.data.DataLoader(Squares(op), batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert next(iter(loader)).mean(1).tolist() == [2.0, 5.0]


PROGRAM = """
import os, sys, {engine} as lang, torch, tinsmith as ts
lang.init(arch=lang.cpu)

@lang.kernel
def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]

child = os.fork()
if child == 0:
    print(ts.op("x[n] -> y[n]")(double)(torch.ones(2)).tolist(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_fork_before_anything_is_used(engine, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(engine=engine))
    done = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "[2.0, 2.0]"
