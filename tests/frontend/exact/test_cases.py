"""The table of ops, interpreted: the values of compiled kernels. tests/bridge/test_oracle.py compares with torch."""

import pytest
import torch

import cases
from support.interpreted import interpret_op


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_interpreted_faithfully(lang, case):
    """In single precision nothing but the engine's contracted products and its own functions differs."""
    op, inputs = case.raw_op(lang, torch.float32), case.inputs(torch.float32)
    mine = interpret_op(op, *inputs, faithful=True, **case.keywords)
    cases.assert_close(mine, case.op(lang, torch.float32)(*inputs), rtol=1e-6, atol=3e-7)
