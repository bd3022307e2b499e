"""Weights that the kernels of a batched layer change: each sample changes its own copy."""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.each_engine


def test_each_sample_changes_its_own_copy_of_a_weight(lang64):
    lang = lang64
    x, w, y = (lang.field(lang.f64, 3, needs_grad=True) for _ in range(3))

    @lang.kernel
    def run():
        for i in range(3):
            w[i] += x[i]
            y[i] = w[i] ** 2

    layer = ts.EmptyTin().register_input_field(x, batched=True).register_weight_field(w, name="w")
    layer.register_output_field(y).register_kernel(run).finish()
    given = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    expected = (layer.w + given) ** 2
    torch.testing.assert_close(layer(given), expected)
    pairs = zip(*(torch.autograd.grad(one.sum(), (given, layer.w)) for one in (layer(given), expected)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)
