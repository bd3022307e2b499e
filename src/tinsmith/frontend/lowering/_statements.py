"""Statements: which file lowers which; branches and what leaves a loop are here."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ...ir import nodes
from . import _assignments, _functions, _loops
from ._lowering import Lowering
from ._side_effects import is_quiet, without_last_change


def run(low: Lowering, statement: ast.stmt) -> None:
    """Lower one statement. Raises NotCovered, or Misfit."""
    known = _KINDS.get(type(statement))
    if known is None:
        raise low.make_refusal(f"`{ast.unparse(statement).splitlines()[0]}`", statement)
    quiet = is_quiet(low, *_own_expressions(low, statement))
    # A result is computed where the call's own statement uses it, after all calls of that.
    low.state.is_quiet = quiet and (low.state.frame.is_quiet or not isinstance(statement, ast.Return))
    known(low, statement)


def _own_expressions(low: Lowering, statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement, without the statements inside it."""
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return [statement.test]
    return [statement.iter] if isinstance(statement, ast.For) else without_last_change(low, statement)


def _expression(low: Lowering, statement: ast.Expr) -> None:
    if not isinstance(statement.value, ast.Constant):  # a docstring
        low.value(statement.value)


def _branch(low: Lowering, statement: ast.If) -> None:
    if low.state.is_static:  # Python's own `if`, which opens no scope
        low.steps(statement.body if low.value(statement.test) else statement.orelse)
        return
    if low.is_static(statement.test):
        low.run(statement.body if low.value(statement.test) else statement.orelse)
        return
    condition = low.ops.truth(low.number(statement.test))
    line = low.state.line
    body, orelse = (_arm(low, arm) for arm in (statement.body, statement.orelse))
    chosen = body if isinstance(condition, nodes.Const) and condition.value else orelse
    if isinstance(condition, nodes.Const) and not any(isinstance(one, nodes.Break | nodes.Continue) for one in chosen):
        low.state.body += chosen  # Taichi cannot compile every `if False:` that its optimiser meets
        return
    low.state.emit(nodes.If(condition, body, orelse, line))


def _arm(low: Lowering, body: list[ast.stmt]) -> nodes.Block:
    frame = low.state.frame
    innermost = frame.loops[-1] if frame.loops else [False, 0]
    frame.branches += 1
    innermost[1] += 1
    try:
        with low.state.block() as written:
            low.run(body)
    finally:
        frame.branches -= 1
        innermost[1] -= 1
    if frame.status in ("break", "continue") or frame.early is not None:
        frame.status = ""  # of a loop of the run's, or of an early return: the statement is written
    return tuple(written)


def _leave(low: Lowering, statement: ast.Break | ast.Continue) -> None:
    frame = low.state.frame
    word = "break" if isinstance(statement, ast.Break) else "continue"
    if not frame.loops:
        raise low.make_refusal(f"`{word}` outside a loop", statement)
    is_unrolled, branches = frame.loops[-1]
    if is_unrolled and branches:
        raise low.make_refusal(f"`{word}` of a static loop inside a branch that the run decides", statement)
    if not is_unrolled:
        low.state.emit((nodes.Break if word == "break" else nodes.Continue)(low.state.line))
    frame.status = word  # what follows it in its block is never reached


def _assertion(low: Lowering, statement: ast.Assert) -> None:
    """Lower an assertion: where the engine does not check it, only what the condition changes.

    Engines compute `atomic_add(x[i], v) >= 0` in any case.
    """
    if low.keeps_assertions:
        condition = low.ops.truth(low.number(statement.test))
        message = ast.unparse(statement.test) if statement.msg is None else low.value(statement.msg)
        low.state.emit(nodes.Assert(condition, str(message), low.state.line))
    elif not low.state.is_quiet:
        low.number(statement.test)


def _nothing(_low: Lowering, _statement: ast.stmt) -> None:
    return None


_KINDS: dict[type[ast.stmt], Callable[[Lowering, Any], None]] = {
    ast.Assign: _assignments.lower_assign,
    ast.AnnAssign: _assignments.lower_annotated_assign,
    ast.AugAssign: _assignments.lower_augmented_assign,
    ast.Expr: _expression,
    ast.If: _branch,
    ast.For: _loops.over,
    ast.While: _loops.while_true,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Return: _functions.lower_return,
    ast.Pass: _nothing,
    ast.Assert: _assertion,
}
