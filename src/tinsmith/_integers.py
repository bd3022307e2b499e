"""Integers among arguments: one rule for sizes, counts, steps and indices that a user passes."""

from __future__ import annotations

import operator
from typing import Any

import torch

from ._errors import ArgumentError, refusal


def read_integer(value: Any) -> int | None:
    """Return an argument that is an integer as Python's `int`; None for any other value.

    Integers are Python's and NumPy's, and tensors and arrays of one integer. A compiler's symbol is returned as it is.
    A bool is none, since `True` as a size is a mistake, and neither is a float, even a whole one.
    """
    if isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool):
        return None
    # A compiler's symbol is an `int` to it, and stays what it is.
    if isinstance(value, (int, torch.SymInt)):
        return value  # pyright: ignore[reportReturnType]
    try:
        return operator.index(value)
    except TypeError:
        return None


def read_integers(given: Any) -> tuple[int, ...]:
    """Return one integer or several as a tuple; an empty tuple for anything else."""
    if (number := read_integer(given)) is not None:
        return (number,)
    try:
        numbers = [read_integer(one) for one in given]
    except TypeError:
        return ()
    return tuple([one for one in numbers if one is not None]) if None not in numbers else ()


def read_positive(name: str, owner: str, value: Any, remedy: str = "Pass 1 or more.") -> int:
    """Return an argument that is an integer above 0. Raise ArgumentError for any other value."""
    number = read_integer(value)
    if number is None or number < 1:
        raise ArgumentError(refusal(f"`{name}` of {owner} must be a positive integer", [("got", repr(value))], remedy))
    return number


def read_count(name: str, owner: str, value: Any) -> int:
    """Return an argument that is an integer of 0 or more. Raise ArgumentError for any other value."""
    number = read_integer(value)
    if number is None or number < 0:
        rows = [("got", repr(value)), ("expected", "an integer, 0 or more")]
        raise ArgumentError(refusal(f"`{name}` of {owner} is not a count", rows))
    return number


def read_seed(owner: str, value: Any) -> int:
    """Return an argument `seed` that is an integer. Raise ArgumentError for any other value."""
    number = read_integer(value)
    if number is None:
        raise ArgumentError(refusal(f"`seed` of {owner} must be an integer", [("got", repr(value))]))
    return number
