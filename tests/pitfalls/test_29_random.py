"""Pitfall 29: an engine's reverse kernel would draw random numbers anew; the gradient needs those that were drawn."""

import torch

import tinsmith as ts


def test_the_numbers_that_were_drawn(lang64):
    @ts.op("x[n] -> y[n], drawn[n]")
    @lang64.kernel
    def noisy(x: lang64.types.ndarray(), y: lang64.types.ndarray(), drawn: lang64.types.ndarray()):
        for i in x:
            r = lang64.random()
            drawn[i] = r
            y[i] = r * x[i] * x[i]

    x = torch.randn(40, dtype=torch.float64, requires_grad=True)
    out = noisy(x)
    torch.testing.assert_close(out.y, out.drawn * x * x)
    seed = torch.randn(40, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(out.y, x, seed)
    torch.testing.assert_close(gradient, 2 * seed * out.drawn.detach() * x.detach())


def test_drawn_in_a_loop(lang64):
    """A random walk: what it drew at every step is what its output says."""

    @ts.op("x[n] -> y[n], drawn[n, 5]")
    @lang64.kernel
    def walk(x: lang64.types.ndarray(), y: lang64.types.ndarray(), drawn: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            p = x[i]
            for k in range(5):
                r = lang64.random(lang64.f64)
                drawn[i, k] = r
                p = p + r * lang64.sin(p)
            y[i] = p

    x = torch.randn(20, dtype=torch.float64, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    out = walk(x)
    p = twin
    for k in range(5):
        p = p + out.drawn[:, k].detach() * torch.sin(p)
    torch.testing.assert_close(out.y, p)
    out.y.sum().backward()
    p.sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)
