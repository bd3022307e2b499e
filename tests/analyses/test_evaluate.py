"""Expressions evaluated for many values at once, compared with Python's integers."""

import numpy as np
import pytest

from tinsmith.analyses import evaluate
from tinsmith.ir import nodes

VALUES = np.array([-(2**31), -8, -1, 0, 1, 7, 2**31 - 1])


@pytest.mark.parametrize("shift", [0, 1, 3, 31])
@pytest.mark.parametrize(
    ("kind", "operator", "wanted"),
    [
        ("i32", ">>>", lambda value, shift: (value % 2**32) >> shift if shift else value),
        ("i64", ">>>", lambda value, shift: (value % 2**64) >> shift if shift else value),
        ("i32", ">>", lambda value, shift: value >> shift),
    ],
)
def test_shifts_of_negative_numbers(kind, operator, wanted, shift):
    """An unsigned shift fills with zeros: -8 >>> 1 is 2147483644, not -4."""
    expr = nodes.Binary(operator, nodes.Local("n", kind), nodes.Const(shift, "i32"), kind)
    result = evaluate(expr, lambda _: VALUES.astype(np.int64))
    assert result is not None and result.is_defined.all()
    assert result.numbers.tolist() == [wanted(int(value), shift) for value in VALUES]
