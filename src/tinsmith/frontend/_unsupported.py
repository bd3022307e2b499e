"""Find statements that no op supports: analyses, rewriting and gradients would silently skip them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ._nodes import resolve_callee
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
                "it launches its loops until an array says that they are done",
                "Leave the body in the kernel, and call the op in a Python loop (`ts.scan` for a gradient).",
            )
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)]) if resolve_callee(call) == "checkpoint":
            return (
                "it pauses the kernel until the host resumes it, and an op runs to its end",
                "Split the kernel there: into two ops, or the kernels of `ts.chain`.",
            )
        case ast.With() | ast.Try():
            return "an op would pass over what stands in it", "Write the statements without it."
    return None
