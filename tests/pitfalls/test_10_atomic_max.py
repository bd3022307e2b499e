"""Pitfall 10: both engines reverse every atomic as an addition, atomic_max too (taichi #571)."""

import pytest
import torch

import tinsmith as ts
from support.right import assert_right, assert_right_in_a_batch


def maxima(lang):
    @ts.op("x[n] -> m[1]")
    @lang.kernel
    def maxima(x: lang.types.ndarray(), m: lang.types.ndarray()):
        m[0] = -1e9
        for i in x:
            lang.atomic_max(m[0], x[i])

    return maxima


def minima(lang):
    @ts.op("x[n] -> m[1]")
    @lang.kernel
    def minima(x: lang.types.ndarray(), m: lang.types.ndarray()):
        m[0] = 1e9
        for i in x:
            lang.atomic_min(m[0], x[i] * x[i])

    return minima


TWINS = {maxima: lambda x: x.amax(0, keepdim=True), minima: lambda x: (x * x).amin(0, keepdim=True)}


@pytest.mark.parametrize("make", TWINS, ids=lambda make: make.__name__)
def test_the_winner_alone_has_a_gradient(lang64, draw, make):
    assert_right(make(lang64), TWINS[make], (draw(40),))


def test_the_initial_value_may_win(lang64, draw):
    """Outputs start at zero: below it nobody has a gradient."""

    @ts.op("x[n] -> m[1]")
    @lang64.kernel
    def positive(x: lang64.types.ndarray(), m: lang64.types.ndarray()):
        for i in x:
            lang64.atomic_max(m[0], x[i])

    assert_right(positive, lambda x: torch.cat([x.new_zeros(1), x]).amax(0, keepdim=True), (draw(9),))
    assert_right(positive, lambda x: (0.0 * x).sum(0, keepdim=True), (draw(9, low=-2.0, high=-1.0),))


@pytest.mark.parametrize("make", TWINS, ids=lambda make: make.__name__)
def test_the_winner_of_every_sample(lang64, draw, make):
    assert_right_in_a_batch(make(lang64), TWINS[make], (draw(3, 7),))


def test_a_tie_is_shared_evenly(lang64):
    x = torch.tensor([1.0, 5.0, 2.0, 5.0, 5.0, 5.0], dtype=torch.float64)
    assert_right(maxima(lang64), TWINS[maxima], (x,))


def test_the_closest_of_many(lang64, draw):
    """A maximum for each cell, of what is calculated."""

    @ts.op("x[n], k[n]: i32 -> far[m]")
    @lang64.kernel
    def farthest(x: lang64.types.ndarray(), k: lang64.types.ndarray(), far: lang64.types.ndarray()):
        for cell in far:
            far[cell] = -1e9
        for i in x:
            lang64.atomic_max(far[k[i]], lang64.sin(x[i]) * x[i])

    x, k = draw(50), torch.cat([torch.arange(4), torch.randint(4, (46,))]).int()

    def twin(x, k):
        values = torch.sin(x) * x
        return torch.stack([values[k == cell].amax() for cell in range(4)])

    assert_right(farthest, twin, (x, k), m=4)
