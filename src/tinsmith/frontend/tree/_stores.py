"""A kernel without stores to arrays that have no adjoint, or to gradients.

An engine's reverse mode runs such statements again: counters count twice, and what is read in
between is neither the old value nor the new one. Left out, every read finds what the forward
pass left behind. A store to a gradient, `x.grad[i] = 0.0`, would destroy what the reverse adds up there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from .._effects import changes_of
from .._nodes import replace_nodes, root
from .._walk import copy_node, walk


def drop_stores(tree: ast.FunctionDef, arrays: Iterable[str], *, keep_returns: bool = False) -> ast.FunctionDef:
    """A kernel in which no statement of its own stores into `arrays`, but those that do something else too.

    What an atomic on them returns becomes 0, since it must not be needed; `keep_returns` checks that.
    """
    names = frozenset(arrays)

    def is_dropped(target: ast.expr) -> bool:
        return not isinstance(target, ast.Name) and root(target) in names

    return _leave_out(tree, is_dropped, keep_returns=keep_returns)


def drop_gradient_stores(tree: ast.FunctionDef, gradients: Iterable[str]) -> ast.FunctionDef:
    """A kernel in which no statement of its own stores into `gradients`, written as in the kernel: `self.x.grad`.

    A loop over a gradient becomes one over its field.
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
            if isinstance(loop.iter, ast.Call):  # `grouped(x.grad)`
                loop.iter.args = [field(argument) for argument in loop.iter.args]
    return twin


def _leave_out(
    tree: ast.FunctionDef, is_left: Callable[[ast.expr], bool], *, keep_returns: bool = False
) -> ast.FunctionDef:
    """Leaves out statements that change nothing but what `is_left` says, and what atomics on it return."""

    def change(node: ast.AST) -> ast.AST | None:
        is_call = isinstance(node, ast.Call)
        changes = changes_of(node.value if isinstance(node, ast.Expr) else node)
        is_idle = bool(changes) and all(is_left(one.target) for one in changes)
        if not is_idle or (keep_returns if is_call else does_more(node)):
            return None
        return ast.Constant(0) if is_call else ast.Pass()

    def does_more(statement: ast.AST) -> bool:
        """Whether an expression in a statement changes something that stays."""
        parts = walk(statement)
        targets = [one.target for part in parts if isinstance(part, ast.Call) for one in changes_of(part)]
        return any(isinstance(part, ast.NamedExpr) for part in parts) or not all(map(is_left, targets))

    return replace_nodes(copy_node(tree), change)


def _stem(node: ast.expr) -> str:
    """What stands before the innermost bracket: "self.x.grad" of `self.x.grad[i].y`; "" where there is no bracket."""
    stem = ""
    while isinstance(node, ast.Subscript | ast.Attribute):
        stem = ast.unparse(node.value) if isinstance(node, ast.Subscript) else stem
        node = node.value
    return stem
