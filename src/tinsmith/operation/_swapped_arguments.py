"""A hint in the error of a call whose arguments would fit in another order.

This runs after an error, so it may be slow. It only changes the error's message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from .._errors import TinsmithError
from ..calls import Signature, bind, check_tensors, is_symbolic
from ..spec import solve

_MOST = 12
"""The number of arguments up to which all pairs are tried."""


def suggest_order(error: TinsmithError, signature: Signature, arguments: Sequence[Any], named: dict[str, Any]) -> None:
    """Add to an error's message the order in which the call's positional arguments would fit, if exactly one fits, and
    theirs does not.
    """
    if 2 <= len(arguments) <= min(len(signature.order), _MOST):
        # Then something else is wrong: an argument is given twice, or two share memory.
        if _fits(signature, signature.order[: len(arguments)], arguments, named):
            return
        fitting = {
            order for order in _list_orders(signature, len(arguments)) if _fits(signature, order, arguments, named)
        }
        if len(fitting) == 1:
            right = ", ".join(signature.order[: len(arguments)])
            order = fitting.pop()
            listed = ", ".join(order)
            hint = f"Are arguments swapped? They fit as ({listed}), and the call is `{signature.op}({right})`."
            if order == _read_spec_order(signature, len(arguments)):
                hint += ' With `order="spec"` it takes them in the order of the spec.'
            *facts, remedy = str(error).split("\n")
            error.args = ("\n".join([*facts, hint, remedy]), *error.args[1:])


def _list_orders(signature: Signature, count: int) -> Iterator[tuple[str, ...]]:
    """Yield other orders that a caller may have used by mistake: two arguments swapped, or the spec's order."""
    names = signature.order[:count]
    for i, j in combinations(range(count), 2):
        order = list(names)
        order[i], order[j] = order[j], order[i]
        yield tuple(order)
    by_spec = _read_spec_order(signature, count)
    if by_spec != names:
        yield by_spec


def _read_spec_order(signature: Signature, count: int) -> tuple[str, ...]:
    """Return the first `count` arguments of a call in the order of the spec; those that it does not list follow."""
    names = signature.order[:count]
    listed = [item.name for item in signature.spec.inputs if item.name in names]
    return (*listed, *(name for name in names if name not in listed))


def _fits(signature: Signature, order: Sequence[str], arguments: Sequence[Any], named: dict[str, Any]) -> bool:
    """Return True if a call would be accepted with its positional arguments assigned to these names."""
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
