"""Ops of our own whose factories made them with values that stay: they are looked at once, not in each call."""

import pytest
import torch

from tinsmith.operation import Op, OpOptions


def built(lang, held):
    array = lang.types.ndarray(lang.f32, ndim=1)

    @lang.kernel
    def scaled(x: array, y: array):
        for i in x:
            y[i] = held["factor"] * x[i]

    @lang.kernel
    def scaled_backward(grad_y: array, grad_x: array):
        for i in grad_y:
            grad_x[i] = held["factor"] * grad_y[i]

    return scaled, scaled_backward


@pytest.mark.parametrize("steady", [False, True])
def test_steady_ops_do_not_notice_changed_values(lang, steady):
    held = {"factor": 3.0}
    kernel, backward = built(lang, held)
    op = Op([kernel], "x[n] -> y[n]", OpOptions(backward=backward, steady=steady))
    for expected in (3.0, 3.0 if steady else 5.0):
        x = torch.rand(7, requires_grad=True)
        op(x).sum().backward()
        torch.testing.assert_close(op(x), expected * x)
        torch.testing.assert_close(x.grad, torch.full((7,), expected))
        held["factor"] = 5.0


@pytest.mark.each_engine
def test_kernels_on_disk_are_told_apart_by_values_that_are_read_once(lang, disk_cache):
    for _ in range(2):
        for factor in (3.0, 5.0):
            kernel, backward = built(lang, {"factor": factor})
            op = Op([kernel], "x[n] -> y[n]", OpOptions(backward=backward, steady=True))
            x = torch.rand(7, requires_grad=True)
            torch.testing.assert_close(op(x), factor * x)
            op(x).sum().backward()
            torch.testing.assert_close(x.grad, torch.full((7,), factor))
