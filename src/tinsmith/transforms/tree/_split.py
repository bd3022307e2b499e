"""Split gradients: `x.grad` of an array becomes a parameter of its own, `grad_x`."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ...source import copied, walk
from ._loops import NotRewritable, load


def gradients_split(tree: ast.FunctionDef, arrays: Collection[str]) -> tuple[ast.FunctionDef, frozenset[str]]:
    """A kernel that is given the gradients of arrays as arrays; and the arrays whose gradient it uses.

    Raises:
        NotRewritable: a name of such a gradient means something else in the kernel.
    """
    used = frozenset(found for node in walk(tree) if (found := _owner(node)) in arrays)
    for node in walk(tree):
        name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
        if name.removeprefix("grad_") in used and name.startswith("grad_"):
            raise NotRewritable(f"`{name}` is the name of the gradient of `{name.removeprefix('grad_')}`", node)
    twin = _Split(used).visit(copied(tree))
    arguments = [[one, ast.arg(f"grad_{one.arg}")] if one.arg in used else [one] for one in twin.args.args]
    twin.args.args = [one for group in arguments for one in group]
    return ast.fix_missing_locations(twin), used


def _owner(node: ast.AST) -> str:
    """The `x` of `x.grad`."""
    if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


class _Split(ast.NodeTransformer):
    def __init__(self, used: frozenset[str]) -> None:
        self.used = used

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        owner = _owner(node)
        return ast.copy_location(load(f"grad_{owner}"), node) if owner in self.used else self.generic_visit(node)
