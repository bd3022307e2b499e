"""Operators of two values: numbers, vectors and matrices, of which Python or the run knows the numbers."""

from __future__ import annotations

from typing import Any

from . import _nodes as nodes
from ._lowering import Lowering
from ._refusals import Misfit
from ._values import Matrix, kind_of


def apply_binary(low: Lowering, operator: str, left: Any, right: Any) -> Any:
    """A binary operation; a number that goes with every entry of a vector is computed once."""
    left, right = (_alone(low, one, other) for one, other in ((left, right), (right, left)))
    try:
        return low.ops.binary(operator, left, right)
    except (TypeError, ValueError, ArithmeticError) as reason:
        raise Misfit(f"`{operator}` of {kind_of(left)} and {kind_of(right)}: {reason}") from None


def _alone(low: Lowering, value: Any, other: Any) -> Any:
    is_broadcast = isinstance(other, Matrix) and isinstance(
        value, nodes.Load | nodes.Unary | nodes.Binary | nodes.Select | nodes.Cast
    )
    return low.state.share(value) if is_broadcast else value
