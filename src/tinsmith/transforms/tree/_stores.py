"""A kernel without stores to arrays that have no adjoint, or to gradients.

An engine's reverse mode runs such statements again: counters count twice, and what is read in
between is neither the old value nor the new one. Left out, every read finds what the forward
pass left behind. A store to a gradient, `x.grad[i] = 0.0`, would destroy what the reverse adds up there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from ...source import changes_of, copy_node, root


def drop_stores(tree: ast.FunctionDef, arrays: Iterable[str], *, keep_returns: bool = False) -> ast.FunctionDef:
    """A kernel in which no statement of its own stores into `arrays`, but those that do something else too.

    What an atomic on them returns becomes 0, since it must not be needed; `keep_returns` checks that.
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
    """Leaves out statements that change nothing but what `is_left` says, and what atomics on it return."""

    def __init__(self, is_left: Callable[[ast.expr], bool], *, keep_returns: bool = False) -> None:
        self.is_left = is_left
        self.keep_returns = keep_returns

    def visit(self, node: ast.AST) -> Any:
        is_call = isinstance(node, ast.Call)
        changes = changes_of(node.value if isinstance(node, ast.Expr) else node)
        is_idle = bool(changes) and all(self.is_left(one.target) for one in changes)
        if not is_idle or (self.keep_returns if is_call else self._does_more(node)):
            return self.generic_visit(node)
        return ast.copy_location(ast.Constant(0) if is_call else ast.Pass(), node)

    def _does_more(self, statement: ast.AST) -> bool:
        """Whether an expression in a statement changes something that stays."""
        parts = [*ast.walk(statement)]
        targets = [one.target for part in parts if isinstance(part, ast.Call) for one in changes_of(part)]
        return any(isinstance(part, ast.NamedExpr) for part in parts) or not all(map(self.is_left, targets))


def _stem(node: ast.expr) -> str:
    """What stands before the innermost bracket: "self.x.grad" of `self.x.grad[i].y`; "" where there is no bracket."""
    stem = ""
    while isinstance(node, ast.Subscript | ast.Attribute):
        stem = ast.unparse(node.value) if isinstance(node, ast.Subscript) else stem
        node = node.value
    return stem
