"""Suggestions: the name that was probably meant, for names of the public face and for options of its functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ._errors import ArgumentError, nearest, refusal

P = ParamSpec("P")
R = TypeVar("R")


def attach_suggestions(package: str, find: Callable[[str], Any], names: list[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose error says which name was probably meant.

    Args:
        package: its name.
        find: its `__getattr__`.
        names: what it has.
    """

    def find_or_suggest(name: str) -> Any:
        try:
            return find(name)
        except AttributeError:
            if name in names:  # it is there, and could not be loaded
                raise
            guess = "" if name.startswith("_") else nearest(name, names)
            words = f"module {package!r} has no attribute {name!r}{f'. Did you mean `{guess}`?' if guess else ''}"
            # An `obj` keeps Python from adding a suggestion of its own to this one.
            raise AttributeError(words, name=name, obj=None) from None

    return find_or_suggest


def suggest_options(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse a keyword that a function does not take, and say which was probably meant. A decorator."""
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        for name in named:
            if name not in known:
                guess = nearest(name, known)
                remedy = f"Did you mean `{guess}`?" if guess else f"Leave `{name}` out."
                headline = f"ts.{function.__name__} takes no option `{name}`"
                raise ArgumentError(refusal(headline, [("options", ", ".join(known))], remedy))
        return function(*arguments, **named)

    return call
