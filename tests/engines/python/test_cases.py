"""The table of ops, run by Python: values, gradients, batches and tangents are those of their twins in torch."""

import pytest
import torch

import cases
from support.pythonic import on_python


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_values_and_gradients(lang64, case):
    with on_python():
        op = case.op(lang64, torch.float64)
    cases.assert_same_values_and_gradients(op, case.expected, case.inputs(torch.float64))


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_single_precision(lang, case):
    """In single precision nothing but the engine's contracted products and its own functions differs."""
    with on_python():
        op = case.op(lang, torch.float32)
    inputs = case.inputs(torch.float32)
    cases.assert_close(op(*inputs), case.op(lang, torch.float32)(*inputs), rtol=1e-6, atol=3e-7)
