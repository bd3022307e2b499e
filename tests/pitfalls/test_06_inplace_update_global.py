"""Pitfall 06: a kernel reads a value and overwrites it; the reverse kernel reads the new one (taichi #2505)."""

import pytest
import torch

import tinsmith as ts
from support.right import assert_right


def test_it_is_refused_with_its_line(lang64):
    @lang64.kernel
    def turned(t: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            x[i] = lang64.cos(t[i]) * x[i]
            y[i] = x[i]

    with pytest.raises(ts.KernelError, match=r"(?s)`turned`.*input `x`.*test_06_inplace_update_global\.py:14"):
        ts.op("t[n], x[n] -> y[n]")(turned)


def test_the_same_with_memory_of_its_own_is_right(lang64):
    @ts.op("t[n], x[n] -> y[n]")
    @lang64.kernel
    def turned(t: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.cos(t[i]) * x[i]

    t, x = (torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    turned(t, x).sum().backward()
    torch.testing.assert_close(t.grad, (-torch.sin(t) * x).detach())
    torch.testing.assert_close(x.grad, torch.cos(t).detach())


def test_an_output_updated_in_place_is_right(lang64, draw):
    """What was read is recomputed before it is used, however often it was overwritten."""

    @ts.op("t[n], x[n] -> y[n]")
    @lang64.kernel
    def turned(t: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i]
        for i in x:
            y[i] = lang64.cos(t[i]) * y[i]
            y[i] *= y[i] + t[i]

    def twin(t, x):
        y = torch.cos(t) * x
        return y * (y + t)

    assert_right(turned, twin, (draw(9), draw(9)))
