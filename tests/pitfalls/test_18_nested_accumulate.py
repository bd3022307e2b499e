"""Pitfalls 18, 19: sums of one array for every element of another (taichi #8356)."""

import pytest

import tinsmith as ts
from support.right import assert_right, assert_right_in_a_batch


def over_arrays(lang):
    @ts.op("y[m] -> x[n]")
    @lang.kernel
    def over_arrays(y: lang.types.ndarray(), x: lang.types.ndarray()):
        for i in x:
            for j in y:
                x[i] += y[j] * y[j]

    return over_arrays


def over_ranges(lang):
    """Build the kernel of pitfall 19."""

    @ts.op("y[m] -> x[n]")
    @lang.kernel
    def over_ranges(y: lang.types.ndarray(), x: lang.types.ndarray()):
        for i in range(x.shape[0]):
            a = 0.0
            for j in range(y.shape[0]):
                a += y[j] * y[j]
            x[i] += a

    return over_ranges


MAKERS = pytest.mark.parametrize("make", [over_arrays, over_ranges], ids=lambda make: make.__name__)


def twin(y):
    return (y * y).sum().expand(5)


@MAKERS
def test_sums(lang64, draw, make):
    assert_right(make(lang64), twin, (draw(7),), n=5)


@MAKERS
def test_sums_in_a_batch(lang64, draw, make):
    op = make(lang64)
    assert_right_in_a_batch(lambda y: op(y, n=5), twin, (draw(3, 7),))
