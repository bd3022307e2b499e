"""A reverse kernel without stores to arrays that have no adjoint.

An engine's reverse mode runs such statements again: counters count twice, and what is read in
between is neither the old value nor the new one. Left out, every read finds what the forward
pass left behind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from ...source import called, copied


def unstored(tree: ast.FunctionDef, arrays: Iterable[str], *, keep_returns: bool = False) -> ast.FunctionDef:
    """A kernel in which no statement of its own stores into `arrays`, but those that do something else too.

    What an atomic on them returns becomes 0, because nobody may need it. To ask whether anybody does: `keep_returns`.
    """
    return _Leave(frozenset(arrays), keep_returns=keep_returns).visit(copied(tree))


class _Leave(ast.NodeTransformer):
    def __init__(self, arrays: frozenset[str], *, keep_returns: bool) -> None:
        self.arrays = arrays
        self.keep_returns = keep_returns

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        return self._kept(node, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        return self._kept(node, [node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        return self._kept(node, [node.target])

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        is_atomic = isinstance(node.value, ast.Call) and called(node.value).startswith("atomic_")
        if is_atomic and isinstance(node.value, ast.Call):
            return self._kept(node, node.value.args[:1])
        return self._visited(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_atomic = called(node).startswith("atomic_") and bool(node.args) and _root(node.args[0]) in self.arrays
        return ast.copy_location(ast.Constant(0), node) if is_atomic and not self.keep_returns else self._visited(node)

    def _kept(self, node: ast.stmt, targets: list[ast.expr]) -> ast.stmt:
        is_idle = bool(targets) and all(_root(target) in self.arrays for target in targets)
        has_more = any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))
        return ast.copy_location(ast.Pass(), node) if is_idle and not has_more else self._visited(node)

    def _visited(self, node: Any) -> Any:
        return self.generic_visit(node)


def _root(node: ast.expr) -> str:
    if not isinstance(node, ast.Subscript | ast.Attribute):
        return ""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
