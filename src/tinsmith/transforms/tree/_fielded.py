"""Fields as parameters: a kernel that names its fields itself, made into one that is given arrays."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from ._loops import name_of


def fielded(tree: ast.FunctionDef, names: Mapping[str, str]) -> ast.FunctionDef:
    """A kernel in which fields are parameters.

    Args:
        tree: the kernel.
        names: what a field is called in it, `x` or `self.x`, to the parameter that takes its place.
    """
    if not names:
        return tree
    twin = copy.deepcopy(tree)
    twin.body = [_Replace(names).visit(statement) for statement in twin.body]
    twin.args.args += [ast.arg(name) for name in dict.fromkeys(names.values())]
    return twin


class _Replace(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._named(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        found = self._named(node)
        return found if found is not node else self.generic_visit(node)  # type: ignore[return-value]  # an expression

    def _named(self, node: ast.Name | ast.Attribute) -> ast.expr:
        name = self.names.get(name_of(node))
        return node if name is None else ast.copy_location(ast.Name(name, node.ctx), node)
