"""Find statements that no op supports, and uses of arrays that engines refuse with a message without array and line.

Analyses, rewriting and gradients would silently skip such a statement.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ._nodes import index_parts, resolve_callee
from ._read import Source


@dataclass(frozen=True)
class Unsupported:
    """A statement that no op supports.

    Attributes:
        statement: its first line.
        place: where it is, "file:line".
        why: what it does that an op does not do.
        remedy: what to write in its place, a sentence.
    """

    statement: str
    place: str
    why: str
    remedy: str


def find_unsupported(source: Source) -> Unsupported | None:
    """Return the first statement of a kernel or function that no op supports; None if there is none."""
    for node in source.nodes:
        why = _explain(node)
        if why is not None:
            assert isinstance(node, ast.stmt)
            return Unsupported(ast.unparse(node).splitlines()[0].rstrip(":"), source.place(node), *why)
    return None


def _explain(node: ast.AST) -> tuple[str, str] | None:
    """Return why no op supports a statement, and the remedy; None for supported ones."""
    match node:
        case ast.While(test=ast.Call() as test) if resolve_callee(test) in ("graph_do_while", "do_while"):
            return (
                "it repeats its loops while a condition in an array holds, and an op launches its loops once",
                "Leave the body in the kernel, and call the op in a Python loop (`ts.scan` for a gradient).",
            )
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]) if resolve_callee(call) == "checkpoint":
            return (
                "it pauses the kernel until the host resumes it, and an op runs to its end",
                "Split the kernel there: into two ops, or the kernels of `ts.chain`.",
            )
        case ast.With() | ast.Try():
            return (
                "an op would ignore its statements",
                "Write its statements directly in the kernel, without this block.",
            )
    return None


# Arrays -----------------------------------------------------------------------------------------------


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


def find_whole_assignment(source: Source, array: str) -> ArrayMisuse | None:
    """Return the first assignment to an array's name, `y = x * 2`, which binds the name and writes no element."""
    for node in source.nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        is_assignment = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        if is_assignment and any(isinstance(one, ast.Name) and one.id == array for one in targets):
            return ArrayMisuse(ast.unparse(node), source.place(node))
    return None


def returns_value(source: Source) -> bool:
    """Return True if a kernel has a `return` with a value, whether or not its type is declared."""
    return any(isinstance(node, ast.Return) and node.value is not None for node in source.nodes)


def find_method_call(source: Source, array: str) -> ArrayMisuse | None:
    """Return the first call of a method of an array; its text is `x.method()`."""
    for node in source.calls:
        match node.func:
            case ast.Attribute(value=ast.Name(id=owner), attr=method) if owner == array:
                return ArrayMisuse(f"{owner}.{method}()", source.place(node))
    return None
