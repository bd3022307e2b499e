"""Kernels and functions of a file with `from __future__ import annotations`: Quadrants evaluates the texts.

Taichi 1.7.4 refuses such a file.
"""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts

qd = pytest.importorskip("quadrants")
F64 = torch.float64
SPEC = "x[n] -> y[n]"
pytestmark = [pytest.mark.parametrize("engine", ["quadrants"], indirect=True)]


@qd.func
def doubled(a: int, b: qd.i32):
    return a * 2 + b


@qd.func
def add(y: qd.template(), i: qd.i32, v: qd.f64):
    y[i] += v


@qd.func
def increase(total: qd.template(), v):
    total += v


@qd.func
def whole(a) -> qd.i32:
    return a * 3


@qd.real_func
def clipped(a: qd.f64) -> qd.f64:
    if a > 1.0:
        return 1.0 + 0.5 * a
    return a * a


@qd.kernel
def kernel(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in x:
        total = 0.0
        increase(total, x[i] * 2)
        add(y, i, total + doubled(x[i] * 3, x[i] * 5) + whole(x[i]) * x[i] + clipped(x[i]))


def reference(x):
    steps = 2 * (x * 3).detach().trunc() + (x * 5).detach().trunc()
    return 2 * x + steps + (x * 3).detach().trunc() * x + torch.where(x > 1.0, 1.0 + 0.5 * x, x * x)


@pytest.mark.parametrize("options", [{}, {"check_bounds": True}, {"engine": "python"}], ids=str)
def test_string_annotations_are_evaluated(lang64, options):
    x = (0.3 + 1.4 * torch.rand(6, dtype=F64)).requires_grad_()
    op = ts.op(SPEC, adjoint="source", **options)(kernel)
    torch.testing.assert_close(op(x), reference(x))
    (slope,) = torch.autograd.grad(op(x).sum(), x)
    torch.testing.assert_close(slope, torch.autograd.grad(reference(x).sum(), x)[0])
