"""Pitfall 56b: a time loop is reversed only below the outermost loop; wrapped in a loop of one trip it is right."""

import torch

import tinsmith as ts


def test_a_wrapped_time_loop(lang64):
    @ts.op("u0[n], rate[] -> u[4, n]")
    @lang64.kernel
    def stepped(u0: lang64.types.ndarray(ndim=1), rate: lang64.types.ndarray(ndim=0), u: lang64.types.ndarray(ndim=2)):
        for i in range(u0.shape[0]):
            u[0, i] = u0[i]
        for _ in range(1):
            for t in range(3):
                for i in range(u0.shape[0]):
                    u[t + 1, i] = u[t, i] + rate[None] * u[t, i] * u[t, i]

    u0 = torch.randn(4, dtype=torch.float64, requires_grad=True)
    rate = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    twin, twin_rate = (t.detach().clone().requires_grad_() for t in (u0, rate))
    u = stepped(u0, rate)
    u[3].sum().backward()
    v = twin
    for _ in range(3):
        v = v + twin_rate * v * v
    torch.testing.assert_close(u[3], v)
    v.sum().backward()
    torch.testing.assert_close(u0.grad, twin.grad)
    torch.testing.assert_close(rate.grad, twin_rate.grad)
