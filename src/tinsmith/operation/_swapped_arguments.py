"""Swapped arguments: extends the error of a call whose arguments would fit in another order.

This runs after an error, so it may be slow. It only changes the message of the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from .._errors import TinsmithError
from ..calls import Signature, bind, check_tensors, is_symbolic
from ..spec import solve

_MOST = 12
"""Arguments of a call whose pairs are tried."""


def suggest_order(error: TinsmithError, signature: Signature, arguments: Sequence[Any], named: dict[str, Any]) -> None:
    """Add to a refusal in which order the positional arguments of the call would fit, where exactly one is found."""
    if 2 <= len(arguments) <= min(len(signature.order), _MOST):
        fitting = {
            order for order in _list_orders(signature, len(arguments)) if _fits(signature, order, arguments, named)
        }
        if len(fitting) == 1:
            right = ", ".join(signature.order[: len(arguments)])
            fitting_order = ", ".join(fitting.pop())
            hint = f"Are arguments swapped? They fit as ({fitting_order}), and the call is `{signature.op}({right})`."
            *facts, remedy = str(error).split("\n")
            error.args = ("\n".join([*facts, hint, remedy]), *error.args[1:])


def _list_orders(signature: Signature, count: int) -> Iterator[tuple[str, ...]]:
    """Other orders in which arguments are mistakenly given: two of them swapped, and the order of the spec."""
    names = signature.order[:count]
    for i, j in combinations(range(count), 2):
        order = list(names)
        order[i], order[j] = order[j], order[i]
        yield tuple(order)
    listed = [item.name for item in signature.spec.inputs if item.name in names]
    by_spec = (*listed, *(name for name in names if name not in listed))
    if by_spec != names:
        yield by_spec


def _fits(signature: Signature, order: Sequence[str], arguments: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether a call would be taken whose positional arguments were these, by name."""
    try:
        bound = bind(signature, (), {**dict(zip(order, arguments, strict=True)), **named})
        check_tensors(signature, bound.tensors)
        if any(map(is_symbolic, bound.values)):
            return False
        shapes = {name: tuple(one.shape) for name, one in zip(signature.arrays, bound.tensors, strict=True)}
        solve(signature.spec, shapes, signature.size_values(bound.scalars, bound.sizes), signature.op)
    except TinsmithError:
        return False
    return True
