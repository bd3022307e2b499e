"""The cache on disk: what one process generates another one reads, and nothing that is damaged, old or strange."""

import contextlib
import dataclasses
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith import _disk_cache
from tinsmith.calls.backward import _source_adjoint
from tinsmith.compiling import _remember, _stage
from tinsmith.compiling._remember import decode, describe, encode, remember
from tinsmith.ir import Operator, Type, nodes, observe_passes
from tinsmith.passes.adjoint import AdjointOptions, AdjointProgram, Decision, Fresh, How, Run

ENGINE = SimpleNamespace(
    name="taichi", home=SimpleNamespace(name="taichi", lang=SimpleNamespace(__version__=(1, 7, 4)))
)


def make_kernel(factor=3.0, line=4, number=1, path="triple.py"):
    """Build `y[i] = factor * x[i]`."""
    place = (nodes.Local("i", Type.I32),)
    value = nodes.Binary(Operator.MUL, nodes.Const(factor, Type.F32), nodes.Load("x", place, (), Type.F32), Type.F32)
    store = nodes.Store("y", place, (), value, line, number)
    ends = ((nodes.Const(0, Type.I32), nodes.Size("x", 0)),)
    loop = nodes.For(("i",), ends, (store,), is_parallel=True, line=line, number=2)
    arrays = {name: nodes.Array(name, Type.F32, 1) for name in ("x", "y")}
    return nodes.Kernel("triple", path, arrays, {}, {"i": Type.I32}, (loop,))


def make_program():
    """Build a program with all kinds of parts; one kernel is launched twice."""
    kernel = make_kernel()
    decision = Decision(How.TAPE, ("t",), Type.F64, "each iteration", 8, "its update cannot be undone")
    actions = (Fresh("gradient of x", "x"), Run(kernel, 0, {"y": "z"}), Run(kernel, 0, {}))
    reads = frozenset({"x", "y", "z"})
    return AdjointProgram(actions, dict(kernel.arrays), {"x": "gradient of x"}, reads, frozenset(), (decision,))


class Counter:
    """Counts how often a result was computed."""

    def __init__(self, make=make_program):
        self.count = 0
        self.make = make

    def __call__(self):
        self.count += 1
        return self.make()


def recall(compute, *parts, engine=ENGINE, what="adjoint"):
    return remember(engine, what, lambda: parts or (make_kernel(),), compute)


def list_entries(folder):
    return [path for path in folder.rglob("*") if not path.is_dir()]


def find_entry(folder):
    (path,) = list_entries(folder)
    return path


def test_a_result_is_computed_once(disk_cache):
    compute = Counter()
    first, second = recall(compute), recall(compute)
    assert compute.count == 1
    assert first is not second
    assert describe(second) == describe(first)
    assert second.actions[1].kernel is second.actions[2].kernel


def test_given_kernels_stay_the_same_objects(disk_cache):
    def double():
        return AdjointProgram((*program.actions, Run(make_kernel(factor=4.0), 1, {})), {}, {}, frozenset(), frozenset())

    for _ in range(2):
        program = make_program()
        compute = Counter(double)
        result = remember(ENGINE, "clean-up", lambda: (make_kernel(),), compute, program.kernels)
        assert result.actions[2].kernel is program.actions[2].kernel
        assert result.actions[3].kernel.body != program.actions[2].kernel.body
    assert compute.count == 0
    # Who has fewer kernels reads nothing.
    compute = Counter(double)
    remember(ENGINE, "clean-up", lambda: (make_kernel(),), compute)
    assert compute.count == 1


SIZED = {"x": nodes.Array("x", Type.F32, 1, dims=(3,)), "y": nodes.Array("y", Type.F32, 1)}
CHANGES = {
    "a number of the kernel": make_kernel(factor=4.0),
    "the sign of zero": make_kernel(factor=-0.0),
    "an integer in place of a float": make_kernel(factor=0),
    "a line": make_kernel(line=5),
    "the number of a statement": make_kernel(number=7),
    "the file": make_kernel(path="other.py"),
    "a size": dataclasses.replace(make_kernel(), arrays=SIZED),
    "an option": AdjointOptions(active={"x"}, outputs={"y"}, allocations=("y",)),
    "another option": AdjointOptions(active={"x"}, outputs={"y"}, allocations=("y",), keeps_results=False),
}


def test_the_file_name_depends_on_everything_that_decides_a_result(disk_cache):
    for part in (make_kernel(factor=0.0), *CHANGES.values()):
        compute = Counter()
        for _ in range(2):
            recall(compute, part)
        assert compute.count == 1, part
    assert len(list_entries(disk_cache)) == 1 + len(CHANGES)


def make_engine(**changes):
    given = {"name": "taichi", "home": "taichi", "version": (1, 7, 4), **changes}
    lang = SimpleNamespace(__version__=given["version"])
    return SimpleNamespace(name=given["name"], home=SimpleNamespace(name=given["home"], lang=lang))


def test_another_engine_or_version_finds_nothing(disk_cache, monkeypatch):
    compute = Counter()
    recall(compute)
    others = [make_engine(name="python"), make_engine(home="quadrants"), make_engine(version=(1, 7, 5))]
    for place, engine in enumerate(others):
        recall(compute, engine=engine)
        assert compute.count == place + 2
    recall(compute, what="tangent")
    assert compute.count == 5
    for name, value in (("__version__", "0.0.1"), ("_digest_sources", lambda: "of other source")):
        with monkeypatch.context() as patch:
            patch.setattr(_remember, name, value)
            recall(compute)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version", "3.9.0")
        recall(compute)
    assert compute.count == 8
    recall(compute)
    assert compute.count == 8


def test_a_change_of_the_source_is_seen(tmp_path, monkeypatch):
    for room in _remember._SOURCES:
        (tmp_path / room).mkdir()
        (tmp_path / room / "_one.py").write_text("")
    monkeypatch.setattr(_remember, "__file__", str(tmp_path / "compiling" / "_remember.py"))
    digest = _remember._digest_sources.__wrapped__
    seen = [digest(), digest()]
    assert seen[0] == seen[1]
    (tmp_path / "passes" / "_one.py").write_text("x = 1")
    seen.append(digest())
    (tmp_path / "passes" / "_one.py").rename(tmp_path / "passes" / "_two.py")
    seen.append(digest())
    assert len({*seen}) == 3
    (tmp_path / "passes" / "_two.py").unlink()
    assert digest() is None


def test_without_source_nothing_is_kept(disk_cache, monkeypatch):
    monkeypatch.setattr(_remember, "_digest_sources", lambda: None)
    compute = Counter()
    recall(compute), recall(compute)
    assert compute.count == 2
    assert not disk_cache.exists()


class Danger:
    """An object that a pickle makes by running a command."""

    def __reduce__(self):
        return os.mkdir, ("made by a pickle",)


def damage_middle(content):
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    "empty": lambda _: b"",
    "cut in its digest": lambda content: content[:7],
    "cut": lambda content: content[:-1],
    "longer": lambda content: content + b".",
    "another bit in its digest": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "another bit": damage_middle,
    "no entry": lambda _: b"#!/bin/sh\n",
    "a pickle": lambda _: pickle.dumps(make_program),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_replaced(disk_cache, damage):
    compute = Counter()
    recall(compute)
    path = find_entry(disk_cache)
    content = path.read_bytes()
    path.write_bytes(damage(content))
    recall(compute)
    assert compute.count == 2
    assert find_entry(disk_cache) == path
    assert path.read_bytes() == content
    recall(compute)
    assert compute.count == 2


STRANGE = {
    "a call of a function": pickle.dumps(Danger()),
    "a function": pickle.dumps(os.getcwd),
    "an object of the library": pickle.dumps(ts.SpecError("x")),
    "too few arguments": pickle.dumps(Type.F32).replace(b"f32", b"f33"),
    "no pickle": b"x",
}


@pytest.mark.parametrize("payload", STRANGE.values(), ids=STRANGE)
def test_strange_contents_with_a_right_digest_are_replaced(disk_cache, payload, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compute = Counter()
    recall(compute)
    path = find_entry(disk_cache)
    _disk_cache.write_entry(path.stem, payload)
    assert _disk_cache.read_entry(path.stem) == payload
    recall(compute)
    assert compute.count == 2
    assert not (tmp_path / "made by a pickle").exists()
    recall(compute)
    assert compute.count == 2


def test_a_renamed_file_is_replaced(disk_cache):
    first, second = Counter(), Counter()
    recall(first)
    path = find_entry(disk_cache)
    recall(second, make_kernel(factor=7.0))
    (other,) = {*list_entries(disk_cache)} - {path}
    os.replace(other, path)
    recall(first)
    assert first.count == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(disk_cache):
    compute = Counter()
    recall(compute)
    path = find_entry(disk_cache)
    path.unlink()
    os.mkfifo(path)
    recall(compute)
    assert compute.count == 2


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here")
def test_the_file_of_another_user_is_not_read(disk_cache, monkeypatch):
    compute = Counter()
    recall(compute)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    recall(compute)
    assert compute.count == 2


def test_an_unwritable_folder_turns_the_cache_off(disk_cache, monkeypatch):
    compute = Counter()
    disk_cache.parent.mkdir()
    disk_cache.write_text("a file where the folder should be")
    recall(compute), recall(compute)
    assert compute.count == 2
    disk_cache.unlink()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_disk_cache.tempfile, "mkstemp", refuse)
    recall(compute)
    assert compute.count == 3
    assert not list_entries(disk_cache)


def test_a_full_disk_leaves_no_file(disk_cache, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_disk_cache.os, "replace", refuse)
    compute = Counter()
    recall(compute), recall(compute)
    assert compute.count == 2
    assert not list_entries(disk_cache)


@pytest.mark.parametrize("settings", [{"cache": "0"}, {"verify": "1"}])
def test_a_setting_turns_it_off(disk_cache, configure, settings):
    compute = Counter()
    recall(compute)
    configure(**settings)
    recall(compute)
    assert compute.count == 2
    find_entry(disk_cache).unlink()
    recall(compute)
    assert compute.count == 3
    assert not list_entries(disk_cache)


def test_passes_that_are_watched_run(disk_cache):
    compute = Counter()
    recall(compute)
    with observe_passes(lambda *_: None):
        recall(compute)
    assert compute.count == 2


def test_a_refusal_is_not_kept(disk_cache):
    def refuse():
        raise ts.KernelError("no")

    compute = Counter(refuse)
    for _ in range(2):
        with pytest.raises(ts.KernelError, match="no"):
            recall(compute)
    assert compute.count == 2
    assert not disk_cache.exists()


def test_results_other_than_ir_are_not_kept(disk_cache):
    assert encode(ts.KernelError("no")) is None
    assert encode((make_kernel(), [Path("x")])) is None
    assert encode(os.getcwd) is None
    with pytest.raises(TypeError, match="a Path cannot be a key"):
        describe((make_kernel(), type("Path", (), {})()))
    compute = Counter(lambda: (make_kernel(), ts.KernelError("no")))
    recall(compute), recall(compute)
    assert compute.count == 2
    assert not disk_cache.exists()


def test_deep_expressions_are_kept_or_computed(disk_cache):
    value = nodes.Const(1.0, Type.F32)
    for _ in range(20_000):
        value = nodes.Unary(Operator.NEG, value, Type.F32)
    assert encode(value) is None
    value = nodes.Const(1.0, Type.F32)
    for _ in range(100):
        value = nodes.Unary(Operator.NEG, value, Type.F32)
    assert decode(encode(value)) == (value,)


def test_contents_are_the_same_in_all_orders_of_sets():
    assert describe(frozenset("abcdefgh")) == describe(frozenset("hgfedcba"))
    assert describe({"a", "b"}) != describe({"a", "c"})
    assert describe(("a", "b")) != describe(("a", "'b"))


def test_the_oldest_entries_go(disk_cache, monkeypatch):
    monkeypatch.setattr(_disk_cache, "_WRITES", iter(range(0, 64 * 100, 64)))
    monkeypatch.setattr(_disk_cache, "_FOLDERS", 1)
    sizes = []
    for place in range(4):
        recall(Counter(), make_kernel(line=place))
        for path in list_entries(disk_cache):
            if path not in sizes:
                sizes.append(path)
                os.utime(path, (place, place))
    size = sizes[0].stat().st_size
    monkeypatch.setattr(_disk_cache, "MOST_BYTES", 4 * size)
    assert _disk_cache.measure_disk_cache() == (str(disk_cache), 4, 4 * size, 4 * size)
    recall(Counter(), make_kernel(line=4))
    assert {*list_entries(disk_cache)} & {*sizes} == {sizes[3]}
    assert _disk_cache.measure_disk_cache().entries == 2


def test_a_check_lists_one_of_many_folders(disk_cache, monkeypatch):
    for place in range(40):
        recall(Counter(), make_kernel(line=place))
    listed, scan = [], _disk_cache.os.scandir
    monkeypatch.setattr(_disk_cache.os, "scandir", lambda folder: listed.append(folder) or scan(folder))
    monkeypatch.setattr(_disk_cache, "_WRITES", iter([64]))
    recall(Counter(), make_kernel(line=40))
    (folder,) = listed
    assert 1 <= len(list(folder.iterdir())) < len(list_entries(disk_cache)) // 4
    assert _disk_cache.measure_disk_cache().entries == 41


def test_the_folder_is_that_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert _disk_cache.find_folder() == tmp_path / ".cache" / "tinsmith" / "programs"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert _disk_cache.find_folder() == tmp_path / ".cache" / "tinsmith" / "programs"


def test_a_user_without_a_home_keeps_nothing(disk_cache, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(_disk_cache.os.path, "expanduser", lambda path: path)
    compute = Counter()
    recall(compute), recall(compute)
    assert compute.count == 2
    assert _disk_cache.measure_disk_cache()[1:3] == (0, 0)
    assert not list(tmp_path.iterdir())


def test_threads_that_write_and_read_at_once_see_whole_entries(disk_cache):
    seen = []
    stop = time.monotonic() + 1.0
    payload = bytes(range(256)) * 4096

    def write():
        while time.monotonic() < stop:
            _disk_cache.write_entry("00", payload)

    def read():
        while time.monotonic() < stop:
            seen.append(_disk_cache.read_entry("00"))

    threads = [threading.Thread(target=one) for one in (write, write, read, read)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert payload in seen
    assert {*seen} <= {None, payload}
    # Once there, an entry is always there.
    assert None not in seen[seen.index(payload) :]


# Ops --------------------------------------------------------------------------------------------


@pytest.fixture
def generated(monkeypatch):
    """Return the names of generating functions, in the order of their calls."""
    calls = []
    for module, name in [
        (_source_adjoint, "generate_adjoint"),
        (_source_adjoint, "clean_up_adjoint"),
        (_stage, "find_conflicts"),
        (_remember, "write_entry"),
    ]:
        function = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *given, function=function, name=name, **named: (calls.append(name), function(*given, **named))[1],
        )
    return calls


def make_scale(lang, factor):
    @lang.kernel
    def scale(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = factor * x[i] * x[i]

    return ts.op("x[n] -> y[n]")(scale)


def differentiate(op, *inputs):
    tensors = [isinstance(one, torch.Tensor) and one.is_floating_point() for one in inputs]
    leaves = [one.clone().requires_grad_() if is_one else one for one, is_one in zip(inputs, tensors, strict=True)]
    results = op(*leaves)
    results = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
    floats = [one for one, is_one in zip(leaves, tensors, strict=True) if is_one]
    gradients = torch.autograd.grad(sum(one.sum() for one in results), floats, allow_unused=True) if results else ()
    return [one.detach() for one in results], gradients


@pytest.mark.each_engine
@pytest.mark.compiled_engine
def test_an_op_made_again_generates_nothing(lang, disk_cache, generated):
    x = torch.tensor([1.0, 2.0])
    for factor, is_new in ((3.0, True), (3.0, False), (4.0, True), (4.0, False)):
        generated.clear()
        results, gradients = differentiate(make_scale(lang, factor), x)
        assert results[0].tolist() == [factor, 4 * factor]
        assert gradients[0].tolist() == [2 * factor, 4 * factor]
        assert {*generated} == (
            {"generate_adjoint", "clean_up_adjoint", "find_conflicts", "write_entry"} if is_new else set()
        )


def test_the_python_engine_has_entries_of_its_own(lang, disk_cache, generated, configure):
    differentiate(make_scale(lang, 3.0), torch.ones(2))
    configure(engine="python")
    generated.clear()
    for _ in range(2):
        _, gradients = differentiate(make_scale(lang, 3.0), torch.ones(2))
        assert gradients[0].tolist() == [6.0, 6.0]
    assert generated.count("generate_adjoint") <= 1


def make_race(lang, spec="x[n], k[n]: i32 -> y[n]", stride=1, **options):
    @lang.kernel
    def race(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[k[i] * stride] = x[i]

    return ts.op(spec, **options)(race)


def test_warnings_come_again(lang, disk_cache):
    for _ in range(2):
        with pytest.warns(ts.RaceWarning, match="may have a data race"):
            differentiate(make_race(lang), torch.ones(3), torch.arange(3, dtype=torch.int32))


@pytest.mark.each_engine
@pytest.mark.compiled_engine
def test_conflicts_are_those_of_the_kernel_and_its_promises(lang, disk_cache, generated):
    given = torch.ones(3), torch.arange(3, dtype=torch.int32)
    promise = "x[n], unique k[n]: i32 -> y[n]"

    def warns():
        return pytest.warns(ts.RaceWarning, match="may have a data race")

    # A warning is an error in tests.
    for outcome, options in (
        (warns, {}),
        (contextlib.nullcontext, {"spec": promise}),
        (warns, {"stride": 0}),
        (warns, {"spec": promise, "stride": 0}),
        (contextlib.nullcontext, {"races": "allow"}),
    ):
        counts = []
        for _ in range(2):
            generated.clear()
            with outcome():
                make_race(lang, **options)(*given)
            counts.append(generated.count("find_conflicts"))
        assert counts == [0 if "races" in options else 1, 0], options


@pytest.mark.compiled_engine
def test_explanations_have_all_passes(lang, disk_cache):
    texts = []
    for _ in range(2):
        op = make_scale(lang, 3.0)
        differentiate(op, torch.ones(2))
        texts.append(str(op.explain(passes=True)))
    assert texts[0] == texts[1]
    assert "normalize" in texts[1] and "assemble" in texts[1]


def call_tangent(op, *inputs):
    floats = [one for one in inputs if one.is_floating_point()]

    def call(*given):
        numbers = iter(given)
        return op(*(next(numbers) if one.is_floating_point() else one for one in inputs))

    return torch.func.jvp(call, tuple(floats), tuple(torch.ones_like(one) for one in floats))


def test_tangents_are_kept(lang, disk_cache, monkeypatch):
    from tinsmith.calls.derived import _tangents

    first = call_tangent(make_scale(lang, 3.0), torch.tensor([1.0, 2.0]))

    def refuse(*_, **__):
        raise AssertionError("a tangent was generated again")

    monkeypatch.setattr(_tangents, "generate_tangent", refuse)
    second = call_tangent(make_scale(lang, 3.0), torch.tensor([1.0, 2.0]))
    assert second[1].tolist() == [6.0, 12.0] == first[1].tolist()


@pytest.mark.compiled_engine
@pytest.mark.thinned(20)
@pytest.mark.parametrize("case", cases.ALL, ids=lambda one: one.name)
def test_results_are_the_same_bits(case, lang, disk_cache, configure, monkeypatch):
    inputs = case.inputs(torch.float32)

    def run():
        raw = case.build(lang, lang.f32)
        return differentiate(lambda *given: raw(*given, **case.keywords), *inputs)

    configure(cache="0")
    plain = run()
    configure(cache="1")
    for _ in range(2):
        results, gradients = run()
        assert all(map(torch.equal, results, plain[0]))
        for mine, theirs in zip(gradients, plain[1], strict=True):
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs)


# Processes --------------------------------------------------------------------------------------

COUNTING = """
import sys
import torch
import {engine} as lang
import tinsmith as ts
from tinsmith.calls.backward import _source_adjoint
from tinsmith.compiling import _from_ir, _remember, _stage

calls = []
def count(module, name):
    function = getattr(module, name)
    setattr(module, name, lambda *given, **named: (calls.append(name), function(*given, **named))[1])
for module, name in ((_source_adjoint, "generate_adjoint"), (_source_adjoint, "clean_up_adjoint"),
                     (_from_ir, "print_kernel"), (_stage, "find_conflicts"), (_remember, "write_entry")):
    count(module, name)
lang.init(arch=lang.cpu, offline_cache_file_path=sys.argv[1], log_level=lang.ERROR)
"""
PROGRAM = """
@lang.kernel
def walk(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        s = x[i]
        for j in range(w.shape[0]):
            s = lang.sin(s * w[j]) + lang.exp(-s)
        y[i] += s

op = ts.op("x[n], w[m] -> y[n]")(walk)
x = torch.linspace(0, 1, 5).requires_grad_()
w = torch.linspace(1, 2, 3).requires_grad_()
y = op(x, w)
y.sum().backward()
print("RESULT", y.tolist(), x.grad.tolist(), w.grad.tolist())
print("CALLS", sorted(set(calls)))
"""
ON_FIELDS = """
import dataclasses
import random

N = 4
x = torch.linspace(0.5, 1, N).requires_grad_()
results = []
# Objects and fields are elsewhere in each process.
others = [lang.field(lang.f32, N) for _ in range(random.randrange(1, 5))]

@lang.data_oriented
class Spring:
    def __init__(self, stiffness):
        self.stiffness = stiffness
        self.place, self.speed, self.out = (lang.field(lang.f32, N) for _ in range(3))

    @lang.kernel
    def start(self):
        for i in range(N):
            self.speed[i] = 0.0

    @lang.kernel
    def move(self, dt: lang.f32):
        for i in range(N):
            self.speed[i] = self.speed[i] - dt * self.stiffness * lang.sin(self.place[i])
            self.place[i] = self.place[i] + dt * self.speed[i]

    @lang.kernel
    def measure(self):
        for i in range(N):
            self.out[i] = self.place[i] * self.place[i]

spring = Spring(2.0)

def forward():
    spring.start()
    for _ in range(2):
        spring.move(0.1)
    spring.measure()

def note(result):
    results.append((result.tolist(), *[one.tolist() for one in torch.autograd.grad(result.sum(), x)]))

note(ts.rollout(forward, {"place": spring.place}, {"out": spring.out})(x))

place, doubled = (lang.field(lang.f32, N, needs_grad=True) for _ in range(2))

@lang.kernel
def double():
    for i in range(N):
        doubled[i] = 2.0 * place[i] * place[i]

tin = ts.EmptyTin("cpu").register_kernel(double).register_input_field(place).register_output_field(doubled)
note(tin.finish()(x))

if lang.__name__ == "quadrants":
    @dataclasses.dataclass(frozen=True)
    class State:
        q: lang.Tensor
        w: lang.Tensor

    @lang.kernel
    def bend(state: State, out: lang.Tensor):
        for i in range(N):
            state.w[i] = lang.exp(state.q[i])
            out[i] = lang.sin(state.q[i]) * state.w[i]

    for backend in (lang.Backend.FIELD, lang.Backend.NDARRAY):
        q, w, out = (lang.tensor(lang.f32, (N,), backend=backend) for _ in range(3))
        note(ts.rollout(lambda: bend(State(q, w), out), {"q": q}, {"out": out})(x))
print("RESULT", results)
print("CALLS", sorted(set(calls)))
"""


def start(tmp_path, engine, seed, program=PROGRAM, **settings):
    path = tmp_path / "program.py"
    path.write_text(COUNTING.format(engine=engine) + program)
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONHASHSEED": str(seed),
        "TINSMITH_CACHE": "1",
        "TINSMITH_VERIFY": "0",
        **settings,
    }
    command = [sys.executable, str(path), str(tmp_path / engine)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    values = dict(line.split(" ", 1) for line in output.splitlines() if line.startswith(("RESULT", "CALLS")))
    return values["RESULT"], values["CALLS"]


@pytest.mark.each_engine
@pytest.mark.compiled_engine
def test_a_second_process_generates_nothing(engine, tmp_path):
    # Two at once, then one that finds what they wrote, then one that may not.
    first = [finish(one) for one in [start(tmp_path, engine, seed) for seed in (1, 2)]]
    third = finish(start(tmp_path, engine, 3))
    fourth = finish(start(tmp_path, engine, 3, TINSMITH_CACHE="0"))
    assert {result for result, _ in (*first, third, fourth)} == {third[0]}
    # One of the two may have been late.
    assert any("'generate_adjoint'" in calls and "'write_entry'" in calls for _, calls in first)
    assert third[1] == "[]"
    assert "'print_kernel'" in fourth[1] and "'write_entry'" not in fourth[1]


@pytest.mark.each_engine
@pytest.mark.compiled_engine
def test_a_second_process_generates_nothing_for_rollouts_and_layers_on_fields(engine, tmp_path):
    first, second = [finish(start(tmp_path, engine, seed, ON_FIELDS)) for seed in (1, 2)]
    assert "'generate_adjoint'" in first[1] and "'write_entry'" in first[1]
    assert second == (first[0], "[]")
