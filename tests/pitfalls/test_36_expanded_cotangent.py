"""Pitfall 36: `y.sum().backward()` gives a gradient of stride 0 (taichi #8443: once a segmentation fault)."""

import torch

import tinsmith as ts


def test_gradients_of_any_stride(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    for loss in (lambda y: y.sum(), lambda y: y.mean(), lambda y: y[::2].sum(), lambda y: (y.expand(3, 6) * y).sum()):
        x, twin = (torch.linspace(-1, 2, 6, dtype=torch.float64).requires_grad_() for _ in range(2))
        loss(square(x)).backward()
        loss(twin * twin).backward()
        torch.testing.assert_close(x.grad, twin.grad)


def test_a_temporary_gradient_lives_until_the_launch_is_over(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(50_000, dtype=torch.float64, requires_grad=True)
    for _ in range(20):
        (gradient,) = torch.autograd.grad(square(x), x, torch.ones((), dtype=torch.float64).expand(50_000))
        torch.testing.assert_close(gradient, 2 * x.detach())
