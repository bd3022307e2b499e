"""Kernels in the form for GPUs, launched on the CPU: values and gradients of float64, at sizes around a group's.

A thread works on four elements that lie 32 apart, so what is left over begins at multiples of 128 less 96; a loop has
1,048,576 threads, and with more iterations a thread takes several.
"""

# pyright: reportInvalidTypeForm=false

from functools import partial

import pytest
import torch

import tinsmith as ts
from bridge.test_random_kernels import compile_kernel, cotangents, draw_inputs, true_gradient
from bridge.test_strips import along_rays
from golden._capture import recorded_texts
from support import random_kernels
from support.in_float64 import compare_with_float64
from tinsmith.compiling import _from_ir
from tinsmith.passes import _fixed_threads

pytestmark = pytest.mark.compiled_engine

SIZES = (0, 1, 31, 32, 33, 96, 97, 127, 128, 129, 1000)
MANY = (1 << 22) + (1 << 20) + 77
"""Elements of which a thread takes two groups."""


@pytest.fixture(autouse=True)
def _gpu_form(monkeypatch, configure):
    """Compile each kernel in the form for GPUs, and launch it on all threads."""
    configure(poison="1", serial_below="0")
    monkeypatch.setattr(_from_ir, "name_pipeline", lambda engine: "GPU")


compare = partial(compare_with_float64, rtol=3e-5, atol=3e-6)


def gate(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def gated(x: array, w: array, y: array):
        for i in y:
            kept = lang.select(x[i] > 0.0, x[i], 0.1 * x[i])
            y[i] = kept
            y[i] = y[i] * lang.exp(-w[i]) + kept

    return gated


def gate_in_torch(x, w):
    kept = torch.where(x > 0, x, 0.1 * x)
    return kept * torch.exp(-w) + kept


@pytest.mark.parametrize("size", SIZES)
def test_elements(lang, size):
    compare(ts.op("x[n], w[n] -> y[n]")(gate(lang)), gate_in_torch, [torch.randn(size), torch.rand(size)])


def test_a_thread_takes_several_groups(lang):
    x, w = torch.randn(MANY), torch.rand(MANY)
    torch.testing.assert_close(ts.op("x[n], w[n] -> y[n]")(gate(lang))(x, w), gate_in_torch(x, w))


@pytest.mark.parametrize("shape", [(3, 16), (700, 3), (1, 1), (0, 5), (5, 0), (33, 65)])
def test_elements_of_several_axes(lang, shape):
    array = lang.types.ndarray()

    @lang.kernel
    def scaled(x: array, w: array, y: array):
        for i, j in y:
            y[i, j] = x[i, j] * w[i, j]

    compare(ts.op("x[n, m], w[n, m] -> y[n, m]")(scaled), torch.mul, [torch.randn(shape), torch.randn(shape)])


@pytest.mark.parametrize("size", [1, 2, 127, 128, 130, 260])
def test_a_loop_from_1(lang, size):
    array = lang.types.ndarray()

    @lang.kernel
    def differences(x: array, y: array):
        for i in range(1, x.shape[0]):
            y[i - 1] = x[i] - x[i - 1]

    compare(ts.op("x[n] -> y[n - 1]")(differences), torch.diff, [torch.randn(size + 1)])


@pytest.mark.parametrize("end", [-200, -1, 0, 1, 129])
def test_a_loop_to_an_argument(lang, end):
    """A range to a negative number is empty."""
    array = lang.types.ndarray()

    @lang.kernel
    def begun(end: int, x: array, y: array):
        for i in range(end):
            y[i] = 2.0 * x[i]
        for i in range(-3, end):
            if i >= 0:
                y[i] += x[i]

    x = torch.randn(200)
    y = ts.op("x[n] -> y[n]", races="allow")(begun)(end, x)
    torch.testing.assert_close(y, torch.where(torch.arange(200) < end, 3 * x, 0))


@pytest.mark.parametrize("shape", [(5, 7), (1, 200), (130, 3)])
def test_rows(lang, shape):
    """Sums of an inner loop, and a chain of values that its gradient needs."""
    kernel, twin = along_rays(lang)
    compare(ts.op("x[n, m], w[n, m] -> y[n]")(kernel), twin, [torch.rand(shape), torch.rand(shape)])


def test_sums_of_all_iterations(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def total(x: array, k: lang.types.ndarray(dtype=lang.i32), y: array):
        for i in x:
            y[0] += x[i] * x[i]
        for i in x:
            if x[i] > 0.0:
                y[1 + k[i]] += x[i]

    k = torch.arange(300, dtype=torch.int32) % 3

    def twin(x):
        kept = torch.where(x > 0, x, 0)
        sums = torch.zeros(3, dtype=x.dtype).index_add(0, k.long(), kept)
        return torch.cat([(x * x).sum()[None], sums])

    op = ts.op("x[n], k[n]: i32 -> y[4]")(total)
    compare(lambda x: op(x, k), twin, [torch.randn(300)])


def test_more_iterations_than_threads(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def positive(x: array, y: array):
        for i in x:
            if x[i] > 0.0:
                y[i] = x[i]

    x = torch.randn(_fixed_threads.THREADS + 3)
    torch.testing.assert_close(ts.op("x[n] -> y[n]")(positive)(x), x.relu())


@pytest.mark.thinned(5)
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_random_kernel(lang64, seed):
    source = random_kernels.Writer(seed).source()
    op = ts.op(random_kernels.SPEC, scratch=random_kernels.SCRATCH)(compile_kernel(source, lang64, seed))
    x, w, k = draw_inputs(seed)
    given = cotangents(seed)
    wanted = random_kernels.run_in_torch(source, x, w, k)
    for ours, true in zip(op(x, w, k), wanted, strict=True):
        torch.testing.assert_close(ours, true, rtol=1e-8, atol=1e-10, msg=lambda words: f"{words}\n{source}")
    leaves = [one.clone().requires_grad_() for one in (x, w)]
    try:
        outputs = list(op(*leaves, k))
        actual = torch.autograd.grad(outputs, leaves, given, allow_unused=True, materialize_grads=True)
    except ts.GradientError:  # refused, which is as good as right
        return
    for ours, true in zip(actual, true_gradient(source, x, w, k, given), strict=True):
        close = {"rtol": 1e-8, "atol": 1e-10, "equal_nan": True}
        torch.testing.assert_close(ours, true, **close, msg=lambda words: f"{words}\n{source}")


def test_what_an_engine_gets(lang):
    """Forward and backward have a known number of threads, and four loads before the first store."""
    with recorded_texts() as texts:
        x = torch.rand(10, requires_grad=True)
        ts.op("x[n], w[n] -> y[n]")(gate(lang))(x, torch.rand(10)).sum().backward()
    assert len(texts) == 2
    for text in texts:
        lines = [line.strip() for line in text.splitlines()]
        assert f"for thread in range({_fixed_threads.THREADS}):" in lines
        start = lines.index("if end - first > 96:") if "if end - first > 96:" in lines else 0
        assert sum("x_at" in line.partition(" = ")[0] for line in lines[start:]) >= 4
