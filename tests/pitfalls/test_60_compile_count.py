"""Pitfall 60: recompiling for every field, or for every combination of requires_grad.

A call costs one compilation for a dtype and rank, and one more for its gradient; not one a size,
a tensor or a value of a scalar.
"""

import time

import pytest
import torch

import tinsmith as ts


@pytest.mark.parametrize("arrays", ["ndarray", "template"])
def test_a_new_size_or_scalar_compiles_nothing(lang64, arrays):
    kind = lang64.types.ndarray if arrays == "ndarray" else lang64.template

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scaled(x: kind(), scale: lang64.f64, y: kind()):
        for i in x:
            y[i] = scale * lang64.sin(x[i]) * lang64.exp(-x[i])

    def seconds(size, scale):
        x = torch.rand(size, dtype=torch.float64, requires_grad=True)
        start = time.perf_counter()
        scaled(x, scale).sum().backward()
        return time.perf_counter() - start

    first = seconds(64, 1.0)
    again = min(max(seconds(65 + 3 * k + j, 2.0 + k + j) for j in range(3)) for k in range(5))
    assert again < first / 3  # a compilation takes tens of milliseconds, a call some microseconds
