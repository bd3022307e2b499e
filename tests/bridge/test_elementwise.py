"""Elementwise kernels, which CPUs run in strips: the values and gradients of float64 at any length.

Lengths are those around 8, below which a row stays whole, around 64, where a strip ends, and one beyond what runs on
one thread.
"""

# pyright: reportInvalidTypeForm=false

import math

import pytest
import torch

import tinsmith as ts

LENGTHS = (0, 1, 7, 8, 63, 64, 65, 1000, 70_001)
ROWS = ((3, 0), (0, 5), (5, 1), (4, 7), (4, 8), (3, 65), (700, 101))


def sigmoid(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i in range(x.shape[0]):
            a = w[i] * x[i]
            y[i] = w[i] / (1.0 + lang.exp(-a)) + lang.sqrt(w[i])

    return kernel, lambda x, w: w * torch.sigmoid(w * x) + w.sqrt()


def clipped(lang):
    """Build a kernel with selections, and a number that all iterations read."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i in range(x.shape[0]):
            y[i] = lang.select(x[i] > 0.0, lang.min(x[i], w[i]), 0.1 * x[i]) + lang.abs(x[i])

    return kernel, lambda x, w: torch.where(x > 0, torch.minimum(x, w), 0.1 * x) + x.abs()


def entropy(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i in range(x.shape[0]):
            y[i] = lang.tanh(x[i]) - w[i] * lang.log(w[i]) + lang.sin(2.0 * x[i]) * lang.cos(w[i])

    return kernel, lambda x, w: x.tanh() - w * w.log() + (2 * x).sin() * w.cos()


def from_the_end(lang):
    """Build a kernel with an index that counts down, and so does not move with the loop."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i in range(x.shape[0]):
            y[i] = w[i] * x[x.shape[0] - 1 - i]

    return kernel, lambda x, w: w * x.flip(0)


def compare(op, twin, inputs):
    inputs = [one.requires_grad_() for one in inputs]
    exact = [one.detach().double().requires_grad_() for one in inputs]
    y, wanted = op(*inputs), twin(*exact)
    torch.testing.assert_close(y.double(), wanted, rtol=1e-6, atol=5e-7)
    cotangent = torch.rand(y.shape)
    gradients = torch.autograd.grad(y, inputs, cotangent)
    for one, other in zip(gradients, torch.autograd.grad(wanted, exact, cotangent.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=2e-6, atol=1e-6)


@pytest.mark.compiled_engine
@pytest.mark.thinned(6)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("make", [sigmoid, clipped, entropy, from_the_end])
def test_values_and_gradients(lang, make, length):
    kernel, twin = make(lang)
    torch.manual_seed(length)
    compare(ts.op("x[n], w[n] -> y[n]")(kernel), twin, [torch.randn(length), 0.1 + torch.rand(length)])


@pytest.mark.parametrize("rows", ROWS)
def test_elementwise_kernels_over_rows(lang, rows):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i, j in x:
            y[i, j] = x[i, j] * lang.exp(-x[i, j]) + w[j]

    torch.manual_seed(rows[1])
    op = ts.op("x[n, m], w[m] -> y[n, m]")(kernel)
    x, w = torch.rand(rows), torch.rand(rows[1])
    torch.testing.assert_close(op(x, w), x * torch.exp(-x) + w)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles_use_the_library_function(lang, name):
    function = getattr(lang, name)
    array = lang.types.ndarray()

    @lang.kernel
    def elements(x: array, y: array):
        for i in range(x.shape[0]):
            a = x[i]
            a = function(a)
            y[i] = a

    @lang.kernel
    def sums(x: array, y: array):
        for r in range(x.shape[0]):
            for s in range(x.shape[1]):
                y[r] += function(x[r, s] + x[r, 0] * 0.0)

    wanted = getattr(torch, name)
    x = torch.randn(300) * 10
    x[[3, 70, 71, 299]] = torch.tensor([3e38, 1048576.0, -5e7, 1e20])
    y = ts.op("x[n] -> y[n]")(elements)(x)
    torch.testing.assert_close(y.double(), wanted(x.double()), rtol=0, atol=1.2e-7)
    assert ts.op("x[n] -> y[n]")(elements)(torch.tensor([1.0, math.inf, -math.inf, math.nan] * 4)).isnan().sum() == 12
    rows = x[:292].reshape(4, 73)
    y = ts.op("x[n, m] -> y[n]")(sums)(rows)
    torch.testing.assert_close(y.double(), wanted(rows.double()).sum(1), rtol=0, atol=2e-5)


def test_the_last_row_wins_if_rows_store_to_the_same_elements(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def last_row(x: array, y: array):
        lang.loop_config(serialize=True)
        for i, j in lang.ndrange(x.shape[0], x.shape[1]):
            y[j] = x[i, j]

    x = torch.rand(7, 100)
    assert torch.equal(ts.op("x[n, m] -> y[m]")(last_row)(x), x[-1])


def test_serial_prefix_sums_are_not_elementwise(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def sums(x: array, y: array):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i + 1] = y[i] + x[i]

    x = torch.rand(200)
    torch.testing.assert_close(ts.op("x[n] -> y[n + 1]")(sums)(x)[1:], x.cumsum(0))


def test_loop_carried_locals_are_not_elementwise(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def sums(x: array, y: array):
        total = 0.0
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            total += x[i]
            y[i] = total

    x = torch.rand(200)
    torch.testing.assert_close(ts.op("x[n] -> y[n]")(sums)(x), x.cumsum(0))


def test_integers_and_booleans(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            y[i] = lang.select((x[i] > 3) & (x[i] < 90), x[i] * 2 - i, x[i] >> 1)

    x = torch.arange(150, dtype=torch.int32)
    wanted = torch.where((x > 3) & (x < 90), x * 2 - x, x >> 1)
    assert torch.equal(ts.op("x[n]: i32 -> y[n]: i32")(kernel)(x), wanted)


def test_float64(lang64):
    array = lang64.types.ndarray()

    @lang64.kernel
    def kernel(x: array, w: array, y: array):
        for i in range(x.shape[0]):
            y[i] = 2.5 * x[i] + w[i] * w[i]

    x, w = torch.rand(500, dtype=torch.float64), torch.rand(500, dtype=torch.float64)
    torch.testing.assert_close(ts.op("x[n], w[n] -> y[n]")(kernel)(x, w), 2.5 * x + w * w, rtol=1e-15, atol=0)
