"""Returns before the end of a function, which the engines allow in their real functions alone.

The result waits in a local, beside a flag that says that it is set. A loop is left once the flag is up; what
else stands behind such a return becomes a branch for the case that it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ...ir import Misfit, Operator, Type, nodes, types
from .._walk import walk
from ._lowering import Lowering
from ._state import Early, Frame


def plan_early_returns(low: Lowering, function: Callable[..., Any], tree: ast.FunctionDef) -> Early | None:
    """What a function's early returns need; None where it returns at its end alone."""
    if not any(low.fact(may_return, statement) for statement in tree.body[:-1]) and not low.fact(nests, tree.body[-1]):
        return None
    done = low.state.bind("done", nodes.Const(False, Type.U1))
    annotation = function.__annotations__.get("return")
    if annotation is None:
        return Early(done, None)
    kind = {float: low.ops.defaults.fp, int: low.ops.defaults.ip}.get(annotation) or low.scalar_type(annotation)
    if kind is None:
        raise Misfit(f"an early return of `{function.__name__}`, whose result is not a number")
    return Early(done, low.state.bind("result", nodes.Const(types.zero(kind), kind)))


def may_return(statement: ast.AST) -> bool:
    """Whether there is a `return` in a statement."""
    return any(isinstance(node, ast.Return) for node in walk(statement))


def nests(statement: ast.AST) -> bool:
    """Whether there is a `return` inside another statement."""
    return may_return(statement) and not isinstance(statement, ast.Return)


def leave(low: Lowering, early: Early, frame: Frame, value: Any) -> None:
    """Return a value, from wherever the function is."""
    if any(is_static for is_static, _ in frame.loops):
        raise Misfit("an early return inside a static loop")
    state = low.state
    if early.result is not None:
        state.emit(nodes.Assign(early.result.name, low.ops.scalar(value), state.line))
        frame.result = early.result
    state.emit(nodes.Assign(early.done.name, nodes.Const(True, Type.U1), state.line))
    if frame.loops:
        state.emit(nodes.Break(state.line))
    frame.status = "return"


def guard_rest(low: Lowering, early: Early, frame: Frame, rest: list[ast.stmt]) -> None:
    """What stands behind a statement that may have returned."""
    state = low.state
    if frame.loops:
        state.emit(nodes.If(early.done, (nodes.Break(state.line),), (), state.line))
        low.steps(rest)
    elif rest:
        with state.block() as written:
            low.steps(rest)
        state.emit(nodes.If(nodes.Unary(Operator.NOT, early.done, Type.U1), tuple(written), (), state.line))
