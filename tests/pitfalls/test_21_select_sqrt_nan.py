"""Pitfall 21: `select` differentiates the side that it does not take, and 0 times infinity is NaN (taichi #7116).

Here the gradient goes to the chosen side alone. torch.where has the trap too, so the twin guards its root.
"""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def rooted(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def rooted(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.select(x[i] > 0.0, lang.sqrt(x[i]), 0.0)

    return rooted


def twin(x):
    return torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, 1.0)), 0.0)


def with_zeros(x):
    return torch.where(x.abs() < 0.4, 0.0, x)


def test_a_root_that_is_not_chosen(lang64, draw):
    x = with_zeros(draw(20))
    assert (x == 0).any()
    assert_right(rooted(lang64), twin, (x,))


def test_a_root_that_is_not_chosen_in_a_batch(lang64, draw):
    assert_right_in_a_batch(rooted(lang64), twin, (with_zeros(draw(3, 9)),))


def test_a_root_that_is_not_chosen_forwards(lang64, draw):
    assert_right_forwards(rooted(lang64), twin, (with_zeros(draw(20)),))


def test_a_ternary(lang64, draw):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def inverse(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = 1.0 / x[i] if x[i] != 0.0 else x[i] * 3.0

    def twin(x):
        return torch.where(x != 0, 1 / torch.where(x != 0, x, 1.0), 3 * x)

    assert_right(inverse, twin, (with_zeros(draw(20)),))
