"""The operation of one step that first computed a number that is not finite.

The step is run once more, with every call of an op and of a function of torch observed. For an op, the sanitizer then
finds the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..._errors import TinsmithError
from ..._user_warnings import find_line_of_user
from ...calls import watch_calls
from ...operation import Op
from ...time import Step
from .._excerpt import shorten_path
from ..sanitizer import sanitize

Row = tuple[str, str]

_UNFILLED = frozenset({"empty_like", "new_empty", "new_empty_strided"})


class _FirstNonFinite(Exception):
    """Raised at the first number that is not finite. `where` names the function of torch; "" stands for the last call
    of an op.
    """

    def __init__(self, where: str = "") -> None:
        self.where = where


class _Watch(TorchFunctionMode):
    """Observes the results of ops and functions of torch until one is not finite although its arguments are."""

    def __init__(self) -> None:
        super().__init__()
        self._is_inside_op = False
        self.calls: list[tuple[Op[Any], Sequence[Any], dict[str, Any]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "").strip("_")
        if not self._is_inside_op and name not in _UNFILLED and _has_odd([made]):
            given = [*args, *(kwargs or {}).values()]
            if any(isinstance(one, Tensor) for one in given) and not _has_odd(given):
                path, line = find_line_of_user()
                raise _FirstNonFinite(f"torch's `{name}`, called at {shorten_path(path)}:{line}")
        return made

    def look_at_call(self, op: Op[Any], run: Callable[[], Any], given: Sequence[Any], named: dict[str, Any]) -> Any:
        """Run a call of an op, and raise _FirstNonFinite if its results are not finite although its arguments are."""
        before = [one.clone() if isinstance(one, Tensor) else one for one in given]  # it may change them
        self.calls.append((op, before, named))
        self._is_inside_op = True
        try:
            made = run()
        finally:
            self._is_inside_op = False
        results = [made] if isinstance(made, Tensor) else list(made)
        updated = given if op.functional is not op else ()
        if _has_odd([*results, *updated]) and not _has_odd([*before, *named.values()]):
            raise _FirstNonFinite
        return made


def describe_origin(
    step: Step, state: Sequence[Any], inputs: Sequence[Any], parameters: Sequence[Any], *, in_gradient: bool = False
) -> list[Row]:
    """Return rows of a message that name the op and line, or the function of torch, which made a step's numbers
    non-finite.

    Returns no rows if that is unknown: if a layer computed the numbers, or the step's arguments were not finite; and
    for a gradient, if a function of torch did.
    """
    watch = _Watch()
    try:
        with torch.no_grad(), watch_calls(watch.look_at_call), watch:
            step([one.clone() for one in state], inputs, parameters)
    except _FirstNonFinite as born:
        if born.where:
            return [("made by", born.where)]
        op, given, named = watch.calls[-1]
        return [("made by", f"op `{op.name}`"), *_lines_of(op, given, named)]
    for op, given, named in reversed(watch.calls) if in_gradient else ():
        lines = _lines_of(op, given, named)
        if lines:
            return [("made by", f"the derivative of op `{op.name}`"), *lines]
    return []


def _lines_of(op: Op[Any], given: Sequence[Any], named: dict[str, Any]) -> list[Row]:
    """Return the line of an op's kernel that computed the number, as found by the sanitizer."""
    try:
        findings = [one for one in sanitize(op, *given, **named) if one.rule == "TS606"]
    except TinsmithError as error:
        return [("line", f"not known: {str(error).splitlines()[0]}")]
    return [("line", f"{shorten_path(one.path)}:{one.line}: {one.message}") for one in findings[:1]]


def _has_odd(values: Iterable[Any]) -> bool:
    """Return True if one of the values is a tensor with infinities or NaN."""
    tensors = [one for one in values if isinstance(one, Tensor) and (one.is_floating_point() or one.is_complex())]
    with torch.no_grad():
        return not all(bool(one.isfinite().all()) for one in tensors)
