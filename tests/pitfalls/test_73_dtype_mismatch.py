"""Pitfall 73: float32 where the kernel says f64 is refused, never reinterpreted (taichi #6572)."""

import pytest
import torch

import tinsmith as ts


def test_it_names_both_dtypes_and_the_cast(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def double(x: lang64.types.ndarray(dtype=lang64.f64, ndim=1), y: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in x:
            y[i] = x[i] * 2.0

    x = torch.randn(3)
    with pytest.raises(ts.DtypeError, match=r"(?s)`x`.*`double`.*float64.*float32.*x\.(double|to)\("):
        double(x)
    torch.testing.assert_close(double(x.double()), 2 * x.double())
