"""The table of ops, interpreted: the values of compiled kernels, and the gradients of their twins in torch."""

import pytest
import torch

import cases
from support.interpreted import interpreted


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_interpreted(lang64, case):
    op, inputs = case.raw_op(lang64, torch.float64), case.inputs(torch.float64)

    def ours(*given):
        return interpreted(op, *given, **case.keywords)

    cases.assert_same_values_and_gradients(ours, case.expected, inputs)
    cases.assert_close(ours(*inputs), case.op(lang64, torch.float64)(*inputs))


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_interpreted_faithfully(lang, case):
    """In single precision nothing but the engine's contracted products and its own functions differs."""
    op, inputs = case.raw_op(lang, torch.float32), case.inputs(torch.float32)
    mine = interpreted(op, *inputs, faithful=True, **case.keywords)
    cases.assert_close(mine, case.op(lang, torch.float32)(*inputs), rtol=1e-6, atol=3e-7)
