"""Loops over arrays without dims run once, also where they run in order."""

import pytest
import torch

import cases
import tinsmith as ts


@pytest.mark.parametrize("is_serial", [True, False])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_a_grouped_loop(lang64, is_serial, shape):
    @ts.op("x[...], w[] -> y[...]")
    @lang64.kernel
    def squared(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for place in lang64.grouped(y):
            y[place] = x[place] * x[place] * w[None]

    @ts.op("x[...], w[] -> y[...]")
    @lang64.kernel
    def in_order(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        lang64.loop_config(serialize=True)
        for place in lang64.grouped(y):
            y[place] = x[place] * x[place] * w[None]

    op = in_order if is_serial else squared
    inputs = torch.rand(shape, dtype=torch.float64), torch.rand((), dtype=torch.float64)
    cases.assert_same_values_and_gradients(op, lambda x, w: x * x * w, inputs)


def test_a_loop_inside_another(lang64):
    @ts.op("x[n], w[] -> y[n]")
    @lang64.kernel
    def inside(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            s = x[i]
            for place in lang64.grouped(w):
                s = s * w[place]
            y[i] = s * s

    inputs = torch.rand(4, dtype=torch.float64), torch.rand((), dtype=torch.float64)
    cases.assert_same_values_and_gradients(inside, lambda x, w: (x * w) ** 2, inputs)
