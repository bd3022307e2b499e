"""Python functions with a gradient written by their author: the engines' decorators `grad_replaced` and `grad_for`.

The engines run them on a tape. The decorated functions are only reachable through closures, and are recognized by the
decorators' code objects: tests/bridge/test_grad_replaced.py checks this for both engines.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from ._contract import Engine


class Replaced(NamedTuple):
    """The function that `grad_replaced` decorates, and the gradient that its `grad_for` decorates, or None.

    `owner` is the object of a bound method, None for a function.
    """

    function: Callable[..., Any]
    gradient: Callable[..., Any] | None
    owner: Any


def unwrap_replaced(engine: Engine, candidate: object) -> Replaced | None:
    """Return the function, gradient and object of a function decorated by `grad_replaced`; None for anything else."""
    function = candidate.__func__ if isinstance(candidate, MethodType) else candidate
    if not isinstance(function, FunctionType) or function.__code__ not in _inner(engine.lang.ad.grad_replaced):
        return None
    gradient = find_gradient(function)
    owner = candidate.__self__ if isinstance(candidate, MethodType) else None
    return Replaced(_unwrap(function), None if gradient is None else _unwrap(gradient), owner)


def find_gradient(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the gradient of a function decorated by `no_grad` or `grad_replaced`; None before
    `grad_for` defines one.
    """
    gradient: Callable[..., Any] | None = getattr(function, "grad", None)
    return gradient


def _inner(decorator: FunctionType) -> list[CodeType]:
    """Return the code objects of the functions that a decorator defines inside itself."""
    return [one for one in decorator.__code__.co_consts if isinstance(one, CodeType)]


def _unwrap(decorated: FunctionType) -> Any:
    """Return the function that a decorated function calls."""
    cells = dict(zip(decorated.__code__.co_freevars, decorated.__closure__ or (), strict=True))
    return cells["func"].cell_contents
