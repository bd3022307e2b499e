"""Pitfalls 75a, 75b: a value is used and then overwritten; engines see that on fields alone, and in debug mode."""

import pytest
import torch

import tinsmith as ts
from support.right import assert_right


def overwritten(lang):
    @lang.kernel
    def overwritten(x: lang.types.ndarray(), b: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1):
            y[None] = x[1] * b[i]
            b[i] += 100.0

    return overwritten


def test_an_input_is_refused(lang64):
    with pytest.raises(ts.KernelError, match=r"(?s)`overwritten`.*input `b`.*test_75_validation\.py:15"):
        ts.op("x[4], b[1] -> y[]")(overwritten(lang64))


def test_an_output_that_is_used_first_is_right(lang64, draw):
    @ts.op("x[4] -> b[1], y[]")
    @lang64.kernel
    def used(x: lang64.types.ndarray(), b: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(1):
            b[i] = x[0] * x[0]
        for i in range(1):
            y[None] = x[1] * b[i]
            b[i] = lang64.sin(b[i]) + 100.0

    def twin(x):
        square = x[:1] * x[:1]
        return torch.sin(square) + 100.0, x[1] * square[0]

    assert_right(used, twin, (draw(4),))
