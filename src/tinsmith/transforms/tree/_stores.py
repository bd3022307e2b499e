"""A kernel without stores to arrays that have no adjoint, or to gradients.

An engine's reverse mode runs such statements again: counters count twice, and what is read in
between is neither the old value nor the new one. Left out, every read finds what the forward
pass left behind. A store to a gradient, `x.grad[i] = 0.0`, would destroy what the reverse adds up there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from ...source import copy_node, resolve_callee, root


def drop_stores(tree: ast.FunctionDef, arrays: Iterable[str], *, keep_returns: bool = False) -> ast.FunctionDef:
    """A kernel in which no statement of its own stores into `arrays`, but those that do something else too.

    What an atomic on them returns becomes 0, because nobody may need it. To ask whether anybody does: `keep_returns`.
    """
    names = frozenset(arrays)
    return _Leave(
        lambda target: not isinstance(target, ast.Name) and root(target) in names, keep_returns=keep_returns
    ).visit(copy_node(tree))


def drop_gradient_stores(tree: ast.FunctionDef, gradients: Iterable[str]) -> ast.FunctionDef:
    """A kernel in which no statement of its own stores into `gradients`, written as in the kernel: `self.x.grad`.

    A loop over a gradient becomes one over its field.
    """
    texts = frozenset(gradients)
    if not texts:
        return tree
    return _LoopOverFields(texts).visit(_Leave(lambda target: _stem(target) in texts).visit(copy_node(tree)))


class _LoopOverFields(ast.NodeTransformer):
    def __init__(self, gradients: frozenset[str]) -> None:
        self.gradients = gradients

    def visit_For(self, node: ast.For) -> ast.AST:
        node.iter = self._field(node.iter)
        if isinstance(node.iter, ast.Call):  # `grouped(x.grad)`
            node.iter.args = [self._field(argument) for argument in node.iter.args]
        return self.generic_visit(node)

    def _field(self, node: ast.expr) -> ast.expr:
        is_gradient = isinstance(node, ast.Attribute) and ast.unparse(node) in self.gradients
        return node.value if is_gradient and isinstance(node, ast.Attribute) else node


class _Leave(ast.NodeTransformer):
    def __init__(self, is_left: Callable[[ast.expr], bool], *, keep_returns: bool = False) -> None:
        self.is_left = is_left
        self.keep_returns = keep_returns

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        return self._visit_if_used(node, node.targets)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        return self._visit_if_used(node, [node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        return self._visit_if_used(node, [node.target])

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        is_atomic = isinstance(node.value, ast.Call) and resolve_callee(node.value).startswith("atomic_")
        if is_atomic and isinstance(node.value, ast.Call):
            return self._visit_if_used(node, node.value.args[:1])
        return self._visit_parts(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_atomic = resolve_callee(node).startswith("atomic_") and bool(node.args) and self.is_left(node.args[0])
        return (
            ast.copy_location(ast.Constant(0), node) if is_atomic and not self.keep_returns else self._visit_parts(node)
        )

    def _visit_if_used(self, node: ast.stmt, targets: list[ast.expr]) -> ast.stmt:
        is_idle = bool(targets) and all(self.is_left(target) for target in targets)
        has_more = any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))
        return ast.copy_location(ast.Pass(), node) if is_idle and not has_more else self._visit_parts(node)

    def _visit_parts(self, node: Any) -> Any:
        return self.generic_visit(node)


def _stem(node: ast.expr) -> str:
    """What stands before the innermost bracket: "self.x.grad" of `self.x.grad[i].y`; "" where there is no bracket."""
    found = ""
    while isinstance(node, ast.Subscript | ast.Attribute):
        found = ast.unparse(node.value) if isinstance(node, ast.Subscript) else found
        node = node.value
    return found
