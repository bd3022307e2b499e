"""Pitfall 07: a running average kept in one cell; engines see its last value only (taichi #2425)."""

import pytest
import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def ewma(lang):
    @ts.op("a[n], d[n] -> e[1]")
    @lang.kernel
    def ewma(a: lang.types.ndarray(), d: lang.types.ndarray(), e: lang.types.ndarray()):
        for _ in range(1):
            for j in range(d.shape[0]):
                e[0] = (1.0 - a[j]) * e[0] + a[j] * d[j]

    return ewma


def averaged(a, d):
    state = torch.zeros((), dtype=a.dtype)
    for weight, value in zip(a, d, strict=True):
        state = (1 - weight) * state + weight * value
    return state[None]


def test_one_cell_that_is_the_output(lang64, draw):
    assert_right(ewma(lang64), averaged, (draw(7, low=0.1, high=0.6), draw(7)))


def test_one_cell_that_is_the_output_in_a_batch(lang64, draw):
    assert_right_in_a_batch(ewma(lang64), averaged, (draw(3, 5, low=0.1, high=0.6), draw(3, 5)))


def test_one_cell_that_is_the_output_forwards(lang64, draw):
    assert_right_forwards(ewma(lang64), averaged, (draw(7, low=0.1, high=0.6), draw(7)))


def quadratic(x):
    state, rows = torch.zeros((), dtype=x.dtype), []
    for value in x:
        state = 0.8 * state**2 + 0.2 * value
        rows.append(state)
    return torch.stack(rows)


def one_cell(lang):
    @lang.kernel
    def average(x: lang.types.ndarray(), h: lang.types.ndarray(), y: lang.types.ndarray()):
        for _ in range(1):
            for i in range(x.shape[0]):
                h[0] = 0.8 * h[0] * h[0] + 0.2 * x[i]
                y[i] = h[0]

    return average


def test_one_cell_overwritten_again_and_again(lang64, draw):
    assert_right(ts.op("x[n] -> y[n]", scratch="h[1]")(one_cell(lang64)), quadratic, (draw(6),))


def test_one_cell_is_refused_by_the_engine_s_reverse_mode(lang64, draw):
    average = ts.op("x[n] -> y[n]", scratch="h[1]", adjoint="engine")(one_cell(lang64))
    with pytest.raises(ts.GradientError, match=r"(?s)`h`.*test_07_ewma_inplace\.py:\d+"):
        average(draw(4).requires_grad_()).sum().backward()


def test_a_cell_for_every_step(lang64, draw):
    @ts.op("x[n] -> y[n]", scratch="h[n + 1]")
    @lang64.kernel
    def average(x: lang64.types.ndarray(), h: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            for i in range(x.shape[0]):
                h[i + 1] = 0.8 * h[i] * h[i] + 0.2 * x[i]
                y[i] = h[i + 1]

    assert_right(average, quadratic, (draw(6),))
