"""Pitfalls 84, 85: one layer called twice before backward; Stannum's Tin differentiates the second call twice."""

import torch

import tinsmith as ts


def test_every_call_keeps_its_own_values(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    a, b = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    (square(a) + square(b)).sum().backward()
    torch.testing.assert_close(a.grad, 2 * a.detach())
    torch.testing.assert_close(b.grad, 2 * b.detach())


def test_calls_of_different_sizes_and_in_reverse(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    a, b = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in (3, 8))
    first, second = square(a), square(b)
    first.sum().backward()
    second.sum().backward()
    torch.testing.assert_close(a.grad, 2 * a.detach())
    torch.testing.assert_close(b.grad, 2 * b.detach())
