"""Pitfall 55: several top-level loops through a temporary are reversed last to first."""

import torch

import tinsmith as ts


def test_three_loops_through_scratch(lang64):
    @ts.op("x[n] -> y[n]", scratch="h[n], g[n]")
    @lang64.kernel
    def waves(
        x: lang64.types.ndarray(), h: lang64.types.ndarray(), g: lang64.types.ndarray(), y: lang64.types.ndarray()
    ):
        for i in x:
            h[i] = x[i] * x[i]
        for i in x:
            g[i] = lang64.sin(h[i])
        for i in x:
            y[i] = g[i] * h[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    waves(x).sum().backward()
    (torch.sin(twin**2) * twin**2).sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)
