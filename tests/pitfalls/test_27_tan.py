"""Pitfall 27: Taichi does not differentiate `tan`."""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards


def tangent(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def tangent(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.tan(x[i])

    return tangent


def test_tan(lang64, draw):
    assert_right(tangent(lang64), torch.tan, (draw(12),))


def test_tan_forwards(lang64, draw):
    assert_right_forwards(tangent(lang64), torch.tan, (draw(12),))


def test_round_has_no_slope(lang64, draw):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def rounded(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.round(x[i]) * x[i]

    assert_right(rounded, lambda x: torch.round(x) * x, (3 * draw(12),))
