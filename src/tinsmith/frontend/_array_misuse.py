"""Find uses of arrays that engines refuse with a message which names neither the array nor its line."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ._nodes import index_parts
from ._read import Source


class ArrayMisuse(NamedTuple):
    """A use of an array: its text, and where it is, as `file:line`."""

    text: str
    place: str


class MismatchedLoop(NamedTuple):
    """A loop over an array of `rank` axes that names `index_count` indices; `text` is its header, `for i, j in x`."""

    array: str
    rank: int
    index_count: int
    text: str
    place: str


def find_mismatched_loop(source: Source, ranks: Mapping[str, int]) -> MismatchedLoop | None:
    """Return the first loop over an array that names more or fewer indices than the array has axes."""
    for node in source.nodes:
        if not (isinstance(node, ast.For) and isinstance(node.iter, ast.Name)):
            continue
        name, count = node.iter.id, len(index_parts(node.target))
        # What is not an array of known rank, such as a Python list, matches any number of indices.
        rank = ranks.get(name, count)
        # One name may stand for the only element of an array without axes.
        if rank != count and (rank, count) != (0, 1):
            text = f"for {ast.unparse(node.target).strip('()')} in {name}"
            return MismatchedLoop(name, rank, count, text, source.place(node))
    return None


def find_array_slice(source: Source, arrays: Collection[str]) -> ArrayMisuse | None:
    """Return the first slice of one of these arrays, `x[i:]`."""
    for node in source.nodes:
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in arrays):
            continue
        if any(isinstance(part, ast.Slice) for part in index_parts(node.slice)):
            return ArrayMisuse(ast.unparse(node), source.place(node))
    return None


def find_method_call(source: Source, array: str) -> ArrayMisuse | None:
    """Return the first call of a method of an array; its text is `x.method()`."""
    for node in source.calls:
        match node.func:
            case ast.Attribute(value=ast.Name(id=owner), attr=method) if owner == array:
                return ArrayMisuse(f"{owner}.{method}()", source.place(node))
    return None
