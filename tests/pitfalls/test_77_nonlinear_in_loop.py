"""Pitfalls 77, 77c, 79, 88: an engine keeps the result of `exp`, `tanh`, `rsqrt` or `max` of the last round alone."""

import pytest
import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def sums_of(lang, f):
    """Build a kernel that sums a function f of a value carried by the loop."""

    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def summed(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.0
            v = 0.0
            for j in range(x.shape[1]):
                v = v + x[i, j]
                s += f(v)
            y[i] = s

    return summed


def exponential(lang):
    @lang.func
    def f(v):
        return lang.exp(v)

    return f


def hyperbolic(lang):
    @lang.func
    def f(v):
        return lang.tanh(v) * v

    return f


def reciprocal_root(lang):
    @lang.func
    def f(v):
        return lang.rsqrt(v * v + 1.0)

    return f


def maximum_in_exponential(lang):
    @lang.func
    def f(v):
        return lang.exp(lang.max(v, 0.3))

    return f


FUNCTIONS = {
    exponential: torch.exp,
    hyperbolic: lambda v: torch.tanh(v) * v,
    reciprocal_root: lambda v: torch.rsqrt(v * v + 1),
    maximum_in_exponential: lambda v: torch.exp(v.clamp(min=0.3)),
}
MAKERS = pytest.mark.parametrize("make", FUNCTIONS, ids=lambda make: make.__name__)


@MAKERS
def test_functions_of_a_carried_sum(lang64, draw, make):
    op = sums_of(lang64, make(lang64))
    assert_right(op, lambda x: FUNCTIONS[make](x.cumsum(1)).sum(1), (draw(5, 40, low=-0.6, high=0.6),))


@MAKERS
def test_functions_of_a_carried_sum_in_a_batch(lang64, draw, make):
    op = sums_of(lang64, make(lang64))
    assert_right_in_a_batch(op, lambda x: FUNCTIONS[make](x.cumsum(1)).sum(1), (draw(2, 3, 7),))


@MAKERS
def test_functions_of_a_carried_sum_forwards(lang64, draw, make):
    op = sums_of(lang64, make(lang64))
    assert_right_forwards(op, lambda x: FUNCTIONS[make](x.cumsum(1)).sum(1), (draw(5, 9),))


def test_carried_through_them(lang64, draw):
    """88b, 77b: the result is what the next round starts from."""

    @ts.op("x[n, m] -> y[n]")
    @lang64.kernel
    def carried(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            v = 0.1
            for j in range(x.shape[1]):
                v = lang64.exp(-v * x[i, j]) + lang64.tanh(v) * lang64.rsqrt(1.0 + v * v)
            y[i] = v

    def twin(x):
        v = torch.full_like(x[:, 0], 0.1)
        for column in x.T:
            v = torch.exp(-v * column) + torch.tanh(v) * torch.rsqrt(1 + v * v)
        return v

    assert_right(carried, twin, (draw(5, 40, low=0.1, high=1.0),))


def test_a_maximum_that_the_sum_is_part_of(lang64, draw):
    """77c"""

    @ts.op("x[n, m] -> y[n]")
    @lang64.kernel
    def squares(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(x.shape[1]):
                d = lang64.max(x[i, j], s * 0.1)
                s += d * d
            y[i] = s

    def twin(x):
        s = torch.zeros_like(x[:, 0])
        for column in x.T:
            s = s + torch.maximum(column, s * 0.1) ** 2
        return s

    assert_right(squares, twin, (draw(5, 8),))


def test_an_online_softmax(lang64, draw):
    """77: a running maximum, and a sum that is scaled whenever it grows."""

    @ts.op("x[n, m], w[n, m] -> y[n]")
    @lang64.kernel
    def attended(x: lang64.types.ndarray(ndim=2), w: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            top = -1e30
            total = 0.0
            value = 0.0
            for j in range(x.shape[1]):
                high = lang64.max(top, x[i, j])
                shrink = lang64.exp(top - high)
                weight = lang64.exp(x[i, j] - high)
                total = total * shrink + weight
                value = value * shrink + weight * w[i, j]
                top = high
            y[i] = value / total

    assert_right(attended, lambda x, w: (x.softmax(1) * w).sum(1), (3 * draw(5, 20), draw(5, 20)))
