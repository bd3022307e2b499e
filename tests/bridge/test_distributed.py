"""Ops on tensors that several processes share, and which dims may be shared out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

import tinsmith as ts
from support.engine_keeper import ENGINES

WORKER = Path(__file__).with_name("distributed_worker.py")
TESTS = Path(__file__).parents[1]


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="this torch is built without gloo")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.costly)])
def test_values_gradients_and_placements(engine, processes):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, WORKER, engine], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("the same") == processes


def shared(op):
    """Return what `explain` says about processes."""
    text = op.explain("all").partition("over processes (DTensor):\n")[2].partition("\n\n")[0]
    return [line.strip() for line in text.splitlines()]


def test_a_loop_over_a_dim(lang64):
    @ts.op("x[n, m], w[m] -> y[n]")
    @lang64.kernel
    def rows(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i] += x[i, j] * w[j]

    lines = shared(rows)
    assert lines[0] == "n, with w whole in each process"
    assert lines[1].startswith("not m: line ") and "no loop over it is the outermost" in lines[1]


def number(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in x:
            y[i] = x[i] * i

    return kernel, "its index is used as a number"


def size(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in x:
            y[i] = x[i] / x.shape[0]

    return kernel, "its size is used as a number"


def neighbor(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in x:
            y[i] = x[(i + 1) % 3]

    return kernel, "`x` is indexed by something else"


def inner(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for _ in range(1):
            for i in range(x.shape[0]):
                y[i] = x[i]

    return kernel, "no loop over it is the outermost"


def handed_on(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        total = 0.0
        for i in x:
            total += x[i]
        for i in x:
            y[i] = x[i] / total

    return kernel, "is changed"


def handed_on_in_order(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        total = 0.0
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            total += x[i]
            y[i] = total

    return kernel, ""


def two_at_once(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i, j in lang.ndrange(x.shape[0], x.shape[0]):
            y[i] += x[i] * x[j]

    return kernel, ""


def part(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(2):
            y[i] = x[i]

    return kernel, "no loop over it is the outermost"


@pytest.mark.parametrize(
    "made", [number, size, neighbor, inner, handed_on, handed_on_in_order, two_at_once, part], ids=lambda f: f.__name__
)
def test_constructs_that_prevent_sharding(lang64, made):
    kernel, reason = made(lang64, lang64.types.ndarray())
    (line,) = shared(ts.op("x[n] -> y[n]")(kernel))
    assert line.startswith("not n: ")
    assert reason in line


def test_batch_dims_always(lang64):
    @ts.op("x[*b, n], k[m] -> y[*b, n - m + 1]")
    @lang64.kernel
    def conv(x: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    assert shared(conv) == ["*b: its dims"]
