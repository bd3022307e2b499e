"""Count the indices that a kernel gives an array, which tell an array of vectors from one of numbers.

A parameter annotated `ti.template()` says nothing about its elements; `p[i].x` and `p[i, j]` do.
"""

from __future__ import annotations

import ast

from ..engines import walk
from ._nodes import index_parts, names_in, resolve_callee
from ._read import Source


def subscript_arity(source: Source, array: str) -> int | None:
    """Return the number of indices in every subscript of `array`; None if subscripts differ or an index is a vector."""
    vectors = _vector_names(source.tree)
    arities = {
        _arity(node.slice, vectors)
        for node in walk(source.tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == array
    }
    return arities.pop() if len(arities) == 1 else None


def _arity(index: ast.expr, vectors: set[str]) -> int | None:
    """Return the number of indices in brackets; None if one of them may be a vector."""
    parts = index_parts(index)
    # `x[None]` is the only element of an array without axes.
    if len(parts) == 1 and isinstance(parts[0], ast.Constant) and parts[0].value is None:
        return 0
    if any(isinstance(part, ast.Tuple) for part in parts):
        return None
    # A vector indexes as many axes as it has numbers, and how many these are is not known here.
    names = {node.id for part in parts for node in walk(part) if isinstance(node, ast.Name)}
    return None if names & vectors else len(parts)


def _vector_names(tree: ast.FunctionDef) -> set[str]:
    """Return the locals that hold index vectors: loop variables of `ti.grouped`, and what is computed from them."""
    names: set[str] = set()
    before = -1
    # Until nothing is added: in a loop, the line that copies a vector may stand above the one that computes it.
    while len(names) > before:
        before = len(names)
        for node in walk(tree):
            if (
                isinstance(node, ast.For)
                and resolve_callee(node.iter) == "grouped"
                and isinstance(node.target, ast.Name)
            ):
                names.add(node.target.id)
            elif (
                isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_vector(node.value, names)
            ):
                names.add(node.targets[0].id)
    return names


def _is_vector(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Tuple):
        return True
    calls = {resolve_callee(child) for child in walk(node) if isinstance(child, ast.Call)}
    return bool(calls & {"Vector", "ivec2", "ivec3", "ivec4"}) or bool(names_in(node) & names)
