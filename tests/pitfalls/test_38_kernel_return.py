"""Pitfall 38: a loss returned by the kernel has no gradient; the engines stop in reverse_segments.cpp."""

import pytest
import torch

import tinsmith as ts


def test_a_returned_value_is_refused_with_what_to_write(lang64):
    @lang64.kernel
    def loss(x: lang64.types.ndarray(), y: lang64.types.ndarray()) -> lang64.f64:
        s = 0.0
        for i in x:
            s += x[i] * x[i]
        return s

    with pytest.raises(ts.KernelError, match=r"(?s)`loss`.*return.*\[\]"):
        ts.op("x[n] -> y[n]")(loss)


def test_the_suggested_kernel_is_right(lang64):
    @ts.op("x[n] -> loss[]")
    @lang64.kernel
    def squares(x: lang64.types.ndarray(), loss: lang64.types.ndarray(ndim=0)):
        for i in x:
            loss[None] += x[i] * x[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    squares(x).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
