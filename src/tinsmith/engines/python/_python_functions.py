"""Python's built-in functions that kernels may call: `int`, `min`, `len` and the like."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from ._numbers import KINDS
from ._run import Run
from ._values import Matrix


def _build_conversion(python: type) -> Callable[[Run], Callable[..., Any]]:
    def build(run: Run) -> Callable[..., Any]:
        kind = run.dtype_name(python)
        assert kind is not None

        def convert(value: Any) -> Any:
            value = run.capture(value)
            is_run_time = type(value) in KINDS or isinstance(value, Matrix)
            return run.operations.cast(value, kind) if is_run_time else python(value)

        return convert

    return build


def _absolute(run: Run) -> Callable[..., Any]:
    rule = run.operations.unary("abs")
    return lambda value: rule(value) if type(value) in KINDS or not isinstance(value, int | float) else abs(value)


def build_extreme(name: str) -> Callable[[Run], Callable[..., Any]]:
    """Return the builder of `max` ("max") or `min` ("min") for any number of values."""

    def build(run: Run) -> Callable[..., Any]:
        rule = run.operations.binary(name)

        def extreme(*values: Any) -> Any:
            if len(values) == 1:
                return values[0]
            # Evaluated from the right: the first value, and the extreme of the others.
            return rule(values[0], extreme(*values[1:]))

        return extreme

    return build


def _total(run: Run) -> Callable[..., Any]:
    def total(items: Any, start: Any = 0) -> Any:
        result = start
        for item in items:
            result = run.add(result, item)
        return result

    return total


BUILTINS: dict[Any, Callable[[Run], Callable[..., Any]]] = {
    builtins.int: _build_conversion(int),
    builtins.float: _build_conversion(float),
    builtins.bool: _build_conversion(bool),
    builtins.abs: _absolute,
    builtins.min: build_extreme("min"),
    builtins.max: build_extreme("max"),
    builtins.pow: lambda run: run.operations.binary("pow"),
    builtins.len: lambda run: lambda value: len(run.capture(value)),
    builtins.sum: _total,
    builtins.any: lambda run: lambda value: run.operations.reduce_truths("any", value),
    builtins.all: lambda run: lambda value: run.operations.reduce_truths("all", value),
}
