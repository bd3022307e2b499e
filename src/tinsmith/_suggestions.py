"""Suggestions of the intended name for misspelled public names and options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from ._errors import ArgumentError, nearest, refusal

P = ParamSpec("P")
R = TypeVar("R")


def attach_suggestions(package: str, find: Callable[[str], Any], names: list[str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__` whose error suggests the name that was probably meant.

    Args:
        package: the package's name.
        find: its `__getattr__`.
        names: the names that it has.
    """

    def find_or_suggest(name: str) -> Any:
        try:
            return find(name)
        except AttributeError:
            if name in names:  # the name exists, but could not be imported
                raise
            guess = "" if name.startswith("_") else nearest(name, names)
            words = f"module {package!r} has no attribute {name!r}{f'. Did you mean `{guess}`?' if guess else ''}"
            # An `obj` keeps Python from adding a suggestion of its own to this one.
            raise AttributeError(words, name=name, obj=None) from None

    return find_or_suggest


def suggest_options(usage: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function so that an unknown keyword raises ArgumentError with the option that was probably meant.

    Too many positional arguments raise one too, with `usage`, a correct call of the function.
    """
    label = usage.partition("(")[0]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = [*inspect.signature(function).parameters.values()]
        # The object of a method is not an argument that a caller writes.
        first = int(parameters[0].name == "self")
        known = [one.name for one in parameters[first:] if not one.name.startswith("_")]
        most = sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)

        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            if len(arguments) > most:
                raise ArgumentError(_too_many(label, most - first, arguments[first:], usage))
            for name in named:
                if name not in known and not name.startswith("_"):
                    raise ArgumentError(unknown_option(label, name, known))
            return function(*arguments, **named)

        return call

    return decorate


def unknown_option(label: str, name: str, known: Sequence[str]) -> str:
    """Return the message for an option `name` that the function `label` does not have. It suggests one of `known`."""
    guess = nearest(name, known)
    remedy = f"Did you mean `{guess}`?" if guess else f"Leave `{name}` out."
    return refusal(f"{label} has no option `{name}`", [("options", ", ".join(known))], remedy)


def _too_many(label: str, most: int, arguments: Sequence[Any], usage: str) -> str:
    kinds = ", ".join(type(one).__name__ for one in arguments)
    rows = [("expected", f"{most} without a keyword"), ("got", f"{len(arguments)}: {kinds}")]
    return refusal(f"{label} got too many arguments", rows, f"Write {usage}; options are given by keyword.")
