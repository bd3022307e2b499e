"""Functions of Python whose gradient their author wrote: `grad_replaced` and `grad_for` of both engines.

The engines run them on a tape. What is under the decorators stands in closures alone, and is recognized by the
decorators' code: tests/bridge/test_grad_replaced.py holds both engines to it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from ._contract import Engine


class Replaced(NamedTuple):
    """What is under `grad_replaced`, and what is under its `grad_for`; None where there is none yet.

    `owner` is the object of a bound method, None of a function.
    """

    function: Callable[..., Any]
    gradient: Callable[..., Any] | None
    owner: Any


def unwrap_replaced(engine: Engine, candidate: object) -> Replaced | None:
    """What a function or bound method of `grad_replaced` consists of; None for anything else."""
    function = candidate.__func__ if isinstance(candidate, MethodType) else candidate
    if not isinstance(function, FunctionType) or function.__code__ not in _inner(engine.lang.ad.grad_replaced):
        return None
    gradient = find_gradient(function)
    owner = candidate.__self__ if isinstance(candidate, MethodType) else None
    return Replaced(_unwrap(function), None if gradient is None else _unwrap(gradient), owner)


def find_gradient(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the gradient of a function of `no_grad` or `grad_replaced`; None before `grad_for` defines one."""
    gradient: Callable[..., Any] | None = getattr(function, "grad", None)
    return gradient


def _inner(decorator: FunctionType) -> list[CodeType]:
    """The code of what a decorator returns."""
    return [one for one in decorator.__code__.co_consts if isinstance(one, CodeType)]


def _unwrap(decorated: FunctionType) -> Any:
    """The function that a decorated one calls."""
    cells = dict(zip(decorated.__code__.co_freevars, decorated.__closure__ or (), strict=True))
    return cells["func"].cell_contents
