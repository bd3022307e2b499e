"""Suggestions: the name that was probably meant, for names of the public face and for options of its functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
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


def suggest_options(usage: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse a keyword that a function does not take, and say which was probably meant. A decorator.

    More positional arguments than the function takes are refused too, with `usage`, a correct call of it.
    """
    label = usage.partition("(")[0]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        known = [one.name for one in parameters]
        most = sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)

        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            if len(arguments) > most:
                raise ArgumentError(_too_many(label, most, arguments, usage))
            for name in named:
                if name not in known:
                    raise ArgumentError(unknown_option(label, name, known))
            return function(*arguments, **named)

        return call

    return decorate


def unknown_option(label: str, name: str, known: Sequence[str]) -> str:
    """The words of a refusal: the function `label` takes no option `name`."""
    guess = nearest(name, known)
    remedy = f"Did you mean `{guess}`?" if guess else f"Leave `{name}` out."
    return refusal(f"{label} has no option `{name}`", [("options", ", ".join(known))], remedy)


def _too_many(label: str, most: int, arguments: Sequence[Any], usage: str) -> str:
    kinds = ", ".join(type(one).__name__ for one in arguments)
    rows = [("expected", f"{most} without a keyword"), ("got", f"{len(arguments)}: {kinds}")]
    return refusal(f"{label} got too many arguments", rows, f"Write {usage}; options are given by keyword.")
