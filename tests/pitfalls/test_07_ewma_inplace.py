"""Pitfall 07: a running average kept in one cell; the reverse kernel sees its last value only (taichi #2425)."""

import pytest
import torch

import tinsmith as ts


def test_one_cell_overwritten_again_and_again_is_refused(lang64):
    @lang64.kernel
    def average(x: lang64.types.ndarray(), h: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            for i in range(x.shape[0]):
                h[0] = 0.8 * h[0] * h[0] + 0.2 * x[i]
                y[i] = h[0]

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    with pytest.raises((ts.KernelError, ts.GradientError), match=r"(?s)`h`.*test_07_ewma_inplace\.py:14"):
        ts.op("x[n] -> y[n]", scratch="h[1]")(average)(x).sum().backward()


def test_a_cell_for_every_step_is_right(lang64):
    @ts.op("x[n] -> y[n]", scratch="h[n + 1]")
    @lang64.kernel
    def average(x: lang64.types.ndarray(), h: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            for i in range(x.shape[0]):
                h[i + 1] = 0.8 * h[i] * h[i] + 0.2 * x[i]
                y[i] = h[i + 1]

    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    state, total = torch.zeros((), dtype=torch.float64), 0.0
    for value in twin:
        state = 0.8 * state**2 + 0.2 * value
        total = total + state
    total.backward()
    average(x).sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)
