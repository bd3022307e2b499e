"""Pitfall 26: the slope of a rectifier at 0 must not depend on which way round its `max` is written."""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards


def rectified(lang):
    @ts.op("x[n] -> y[n], z[n], low[n]")
    @lang.kernel
    def rectified(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray(), low: lang.types.ndarray()):
        for i in x:
            y[i] = lang.max(x[i], 0.0)
            z[i] = lang.max(0, x[i])
            low[i] = lang.min(x[i], 0.0)

    return rectified


def twin(x):
    return torch.relu(x), torch.relu(x), -torch.relu(-x)


def with_zeros(x):
    return torch.where(torch.arange(len(x)) % 3 == 0, 0.0, x)


def test_rectifiers(lang64, draw):
    assert_right(rectified(lang64), twin, (with_zeros(draw(12)),))


def test_rectifiers_forwards(lang64, draw):
    assert_right_forwards(rectified(lang64), twin, (with_zeros(draw(12)),))
