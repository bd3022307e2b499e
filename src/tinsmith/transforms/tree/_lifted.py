"""Lifting: scalar parameters become 0-d arrays, so that they can have a gradient.

No engine differentiates by a scalar argument. An array of one element can be: each use of
`m` becomes `m[None]`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ...source import copied


def lifted(tree: ast.FunctionDef, names: Iterable[str]) -> ast.FunctionDef:
    """A kernel in which the scalars `names` are read as 0-d arrays. Its annotations are left alone."""
    lifter = _Lift(frozenset(names))
    if not lifter.names:
        return tree
    twin = copied(tree)
    twin.body = [lifter.visit(statement) for statement in twin.body]
    return twin


class _Lift(ast.NodeTransformer):
    """Turns each read of a lifted scalar into a read of its only element."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names or not isinstance(node.ctx, ast.Load):
            return node
        element = ast.Subscript(node, ast.Constant(None), ast.Load())
        return ast.copy_location(element, node)
