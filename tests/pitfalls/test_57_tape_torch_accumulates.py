"""Pitfall 57: gradients of the engines' Tape pile up in torch tensors from step to step (PR #7898, #8119)."""

import torch

import tinsmith as ts


def test_each_step_has_its_own_gradient(lang64):
    @ts.op("x[n] -> loss[]")
    @lang64.kernel
    def squares(x: lang64.types.ndarray(), loss: lang64.types.ndarray(ndim=0)):
        for i in x:
            loss[None] += x[i] * x[i]

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        x.grad = None
        squares(x).backward()
        torch.testing.assert_close(x.grad, 2 * x.detach())
    optimizer = torch.optim.SGD([x], lr=0.25)
    for _ in range(20):  # each step halves x
        optimizer.zero_grad()
        squares(x).backward()
        optimizer.step()
    assert x.abs().max() < 1e-5
