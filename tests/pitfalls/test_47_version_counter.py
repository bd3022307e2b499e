"""Pitfall 47: a kernel changes a tensor that autograd saved, and nothing notices.

An op writes into no tensor of the caller; and what it saved itself is watched by torch's versions.
"""

import pytest
import torch

import tinsmith as ts


def test_an_op_on_a_saved_tensor_leaves_it_alone(lang64):
    @ts.op("y[n] -> z[n]")
    @lang64.kernel
    def tripled(y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for i in y:
            z[i] = y[i] * 3.0

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = torch.sigmoid(x)
    version = y._version
    z = tripled(y.detach())
    assert y._version == version and z.data_ptr() != y.data_ptr()
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y * (1 - y)).detach())


def test_a_saved_input_changed_by_torch_is_noticed(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    middle = x * 1.0
    y = square(middle)
    middle.mul_(3.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
