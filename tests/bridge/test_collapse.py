"""Elementwise loops over several axes, which run over the numbers of elements: values and gradients of float64."""

# pyright: reportInvalidTypeForm=false

from functools import partial

import pytest
import torch

import tinsmith as ts
from support.in_float64 import compare_with_float64
from tinsmith.passes.strips import _collapse

pytestmark = pytest.mark.compiled_engine

SHAPES = ((3, 16), (700, 3), (1, 1), (0, 5), (5, 0), (9, 64), (33, 65))


@pytest.fixture
def collapsed(monkeypatch):
    """Return the names of the kernels in which a loop was collapsed."""
    kernels = []

    def merge(loop, kernel, *others):
        merged = merge_names(loop, kernel, *others)
        kernels.extend([] if merged is None else [kernel.name])
        return merged

    merge_names = _collapse._merge
    monkeypatch.setattr(_collapse, "_merge", merge)
    return kernels


compare = partial(compare_with_float64, rtol=2e-6, atol=1e-6)


def gate(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def gated(x: array, w: array, y: array):
        for i in lang.grouped(y):
            y[i] = lang.select(x[i] > 0.0, x[i], 0.1 * x[i]) * lang.exp(-w[i])

    return gated, lambda x, w: torch.where(x > 0, x, 0.1 * x) * torch.exp(-w)


def view(shape, first):
    """Return random numbers whose memory begins `first` elements behind an aligned address."""
    return torch.randn(first + torch.Size(shape).numel())[first:].view(shape)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_loops_over_two_axes(lang, shape, first, collapsed):
    kernel, twin = gate(lang)
    op = ts.op("x[n, m], w[n, m] -> y[n, m]")(kernel)
    torch.manual_seed(first)
    compare(op, twin, [view(shape, first), view(shape, first)])
    assert "gated" in collapsed


@pytest.mark.parametrize("shape", SHAPES[:5])
def test_batches(lang, shape, collapsed):
    kernel, twin = gate(lang)
    op = torch.func.vmap(ts.op("x[n], w[n] -> y[n]")(kernel))
    torch.manual_seed(0)
    if shape[0]:
        compare(op, twin, [view(shape, 1), view(shape, 0)])
        assert "gated" in collapsed


def test_a_batch_of_one_input_alone(lang):
    """The rows of the batch read one row of the other input."""
    kernel, twin = gate(lang)
    op = torch.func.vmap(ts.op("x[n], w[n] -> y[n]")(kernel), (0, None))
    torch.manual_seed(0)
    compare(op, twin, [torch.randn(70, 16), torch.randn(16)])


def test_the_last_two_of_three_axes(lang, collapsed):
    array = lang.types.ndarray()

    @lang.kernel
    def scaled(x: array, w: array, y: array):
        for s, i, c in x:
            y[s, i, c] = 2.5 * x[s, i, c] * w[s]

    op = ts.op("x[b, n, 3], w[b] -> y[b, n, 3]")(scaled)
    torch.manual_seed(0)
    compare(op, lambda x, w: 2.5 * x * w[:, None, None], [torch.randn(4, 50, 3), torch.randn(4)])
    assert "scaled" in collapsed


def test_rows_of_other_lengths(lang, collapsed):
    """An element has other numbers in the two arrays."""
    array = lang.types.ndarray()

    @lang.kernel
    def cut(x: array, y: array):
        for i, j in y:
            y[i, j] = 3.0 * x[i, j]

    op = ts.op("x[n, m] -> y[n, m - 1]")(cut)
    torch.manual_seed(0)
    compare(op, lambda x: 3 * x[:, :-1], [torch.randn(70, 17)])
    assert not collapsed


def test_values_that_depend_on_an_index(lang, collapsed):
    array = lang.types.ndarray()

    @lang.kernel
    def ramp(x: array, y: array):
        for i, j in x:
            y[i, j] = x[i, j] * j

    op = ts.op("x[n, m] -> y[n, m]")(ramp)
    compare(op, lambda x: x * torch.arange(x.shape[1]), [torch.randn(70, 17)])
    assert not collapsed


def test_elements_changed_in_place(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def decay(x: array, y: array):
        for i, j in x:
            y[i, j] += x[i, j] * 0.5
            y[i, j] = y[i, j] * x[i, j]

    op = ts.op("x[n, m], inout y[n, m] ->")(decay)

    def call(x, y):
        z = y.clone()
        op(x, z)
        return z

    torch.manual_seed(0)
    compare(call, lambda x, y: (y + x * 0.5) * x, [torch.randn(70, 16), torch.randn(70, 16)])
