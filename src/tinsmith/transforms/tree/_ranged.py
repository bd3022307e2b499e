"""Loops over an array's indices (struct-fors) as loops over ranges: the same iterations, faster code.

Measured on 2 CPU cores, both engines, 10 million float32: `for i in x` takes 19 ms and
`for i in range(x.shape[0])` 3.3 ms, because only the latter is vectorised. In two dimensions
an `ndrange` takes 0.6 of the time. What an engine differentiates itself keeps its own loops.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...source import copied, is_static
from ._loops import header, is_over_array, name_of, over


def ranged(tree: ast.FunctionDef, ranks: Mapping[str, int]) -> ast.FunctionDef:
    """A kernel whose top-level loops run over ranges.

    Args:
        tree: the kernel.
        ranks: dims of every array.
    """
    twin = copied(tree)
    twin.body = [_statement(statement, ranks) for statement in twin.body]
    return twin


def _statement(statement: ast.stmt, ranks: Mapping[str, int]) -> ast.stmt:
    if not isinstance(statement, ast.For):
        return statement
    if is_static(statement):
        statement.body = [_statement(inner, ranks) for inner in statement.body]
    elif is_over_array(statement, ranks) and _rank(statement, ranks) > 0:
        targets, sizes, first = header(statement, ranks)
        statement.target, statement.iter = over(targets, sizes)
        statement.body = first + statement.body
    return statement


def _rank(loop: ast.For, ranks: Mapping[str, int]) -> int:
    """Dims of the array that a loop runs over. A 0-d array's only element needs no rewriting."""
    return next(ranks[name_of(node)] for node in ast.walk(loop.iter) if name_of(node) in ranks)
