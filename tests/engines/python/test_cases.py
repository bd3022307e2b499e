"""The table of ops, run by Python and compiled: tests/bridge compares either with torch."""

import pytest
import torch

import cases
from support.pythonic import use_python_engine


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_single_precision(lang, case):
    """In single precision nothing but the engine's contracted products and its own functions differs."""
    with use_python_engine():
        op = case.op(lang, torch.float32)
    inputs = case.inputs(torch.float32)
    cases.assert_close(op(*inputs), case.op(lang, torch.float32)(*inputs), rtol=1e-6, atol=3e-7)
