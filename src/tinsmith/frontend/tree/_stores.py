"""A kernel without stores to arrays that have no adjoint, or to gradients.

    drop_stores of `count`               count[i] += 1                           ->   pass
                                         y[i] = ti.atomic_add(count[0], 1)       ->   y[i] = 0
    drop_gradient_stores of `x.grad`     x.grad[i] = 0.0                         ->   pass

An engine's reverse mode runs such statements again: counters count twice, and what is read in
between is neither the old value nor the new one. Left out, every read finds what the forward
pass left behind. A store to a gradient, `x.grad[i] = 0.0`, would destroy what the reverse adds up there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from ...engines import copy_node, walk
from .._effects import changes_of
from .._nodes import replace_nodes, root


def drop_stores(tree: ast.FunctionDef, arrays: Iterable[str], *, keep_returns: bool = False) -> ast.FunctionDef:
    """Remove the kernel's own stores into `arrays`, except in statements that do something else too.

    The result of an atomic on them becomes 0, since it must not be needed. With `keep_returns` such an atomic
    stays, so that the caller can check that.
    """
    names = frozenset(arrays)

    def is_dropped(target: ast.expr) -> bool:
        return not isinstance(target, ast.Name) and root(target) in names

    return _leave_out(tree, is_dropped, keep_returns=keep_returns)


def drop_gradient_stores(tree: ast.FunctionDef, gradients: Iterable[str]) -> ast.FunctionDef:
    """Remove the kernel's own stores into `gradients`, which are given as in its source: `self.x.grad`.

    A loop over a gradient becomes one over its field, which has the same indices.
    """
    texts = frozenset(gradients)
    if not texts:
        return tree
    twin = _leave_out(tree, lambda target: _stem(target) in texts)

    def field(node: ast.expr) -> ast.expr:
        is_gradient = isinstance(node, ast.Attribute) and ast.unparse(node) in texts
        return node.value if is_gradient and isinstance(node, ast.Attribute) else node

    for loop in walk(twin):
        if isinstance(loop, ast.For):
            loop.iter = field(loop.iter)
            # `grouped(x.grad)`.
            if isinstance(loop.iter, ast.Call):
                loop.iter.args = [field(argument) for argument in loop.iter.args]
    return twin


def _leave_out(
    tree: ast.FunctionDef, is_left: Callable[[ast.expr], bool], *, keep_returns: bool = False
) -> ast.FunctionDef:
    """Remove statements that change nothing but targets for which `is_left` is True; atomics on these become 0."""

    def change(node: ast.AST) -> ast.AST | None:
        is_call = isinstance(node, ast.Call)
        changes = changes_of(node.value if isinstance(node, ast.Expr) else node)
        is_idle = bool(changes) and all(is_left(one.target) for one in changes)
        if not is_idle or (keep_returns if is_call else does_more(node)):
            return None
        return ast.Constant(0) if is_call else ast.Pass()

    def does_more(statement: ast.AST) -> bool:
        """Return True if an expression in a statement changes something that stays."""
        parts = walk(statement)
        targets = [one.target for part in parts if isinstance(part, ast.Call) for one in changes_of(part)]
        return any(isinstance(part, ast.NamedExpr) for part in parts) or not all(map(is_left, targets))

    return replace_nodes(copy_node(tree), change)


def _stem(node: ast.expr) -> str:
    """Return what stands before the innermost bracket: "self.x.grad" of `self.x.grad[i].y`, or ""."""
    stem = ""
    while isinstance(node, ast.Subscript | ast.Attribute):
        stem = ast.unparse(node.value) if isinstance(node, ast.Subscript) else stem
        node = node.value
    return stem
