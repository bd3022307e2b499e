"""Pitfall 14: the slope of a remainder (taichi #3802)."""

import tinsmith as ts
from support.right import assert_right


def test_the_fraction(lang64, draw):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def fraction(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] % 1.0

    assert_right(fraction, lambda x: x % 1.0, (3 * draw(9),))


def test_the_remainder_by_an_input(lang64, draw):
    """torch: 1, and -(x // k)."""

    @ts.op("x[n], k[n] -> y[n]")
    @lang64.kernel
    def remainder(x: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] % k[i]

    assert_right(remainder, lambda x, k: x % k, (3 * draw(9), draw(9, low=0.2, high=0.9)))
