"""Tapes of an array that is called as a type is: `f64` has a tape of its own beside that for numbers."""

import pytest
import torch

import tinsmith as ts
from tinsmith.operation.reports import adjoint_source


@pytest.mark.parametrize("form", ["for", "while"])  # the tapes' lengths by a formula, and counted by a kernel
def test_tapes_of_arrays_named_like_types_are_distinct(lang64, form):
    numbers = lang64.types.ndarray(dtype=lang64.f64)

    @ts.op("x[n] -> y[n]", scratch="f64[n]", adjoint="source")
    @lang64.kernel
    def power(x: numbers, f64: numbers, y: numbers):
        for i in x:
            s = x[i]
            f64[i] = x[i]
            if lang64.static(form == "for"):
                for _ in range(4):
                    a = s
                    s = lang64.sin(s) * s + 0.3
                    f64[i] = f64[i] * lang64.cos(a) + s * f64[i] * f64[i]
            else:
                while s < 1.0:
                    a = s
                    s = s + lang64.sin(s) * s
                    f64[i] = f64[i] * lang64.cos(a) + s * f64[i] * f64[i]
            y[i] = s + f64[i]

    def twin(x):
        s = f = x
        if form == "for":
            for _ in range(4):
                a = s
                s = torch.sin(s) * s + 0.3
                f = f * torch.cos(a) + s * f * f
        else:
            while s < 1.0:
                a = s
                s = s + torch.sin(s) * s
                f = f * torch.cos(a) + s * f * f
        return s + f

    # Looked at before the launch: one tape for both is too short, and the engine writes behind it.
    source = adjoint_source(power)
    assert "tape: `s` (f64)" in source and "log: `f64`" in source
    x = torch.linspace(0.3, 0.9, 4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(power(x).sum(), x)
    (expected,) = torch.autograd.grad(sum(twin(one) for one in x), x)
    torch.testing.assert_close(gradient, expected)
