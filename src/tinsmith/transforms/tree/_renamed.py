"""Other names for a kernel's parameters, so that kernels written apart can share their arrays by name."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...source import copied


def renamed(tree: ast.FunctionDef, names: Mapping[str, str]) -> ast.FunctionDef:
    """A kernel whose parameters have other names, in its signature and wherever it uses them.

    Parameters that get the same name are one from then on: they were given the same array.

    Args:
        tree: the kernel.
        names: old name to new one. The new ones are taken to mean nothing else in the kernel.
    """
    if all(old == new for old, new in names.items()):
        return tree
    twin: ast.FunctionDef = _Rename(names).visit(copied(tree))
    unique = {argument.arg: argument for argument in reversed(twin.args.args)}
    twin.args.args = [argument for argument in twin.args.args if unique[argument.arg] is argument]
    return twin


class _Rename(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.names.get(node.arg, node.arg)
        return node
