"""Returns before the end of a function, which the engines allow only in real functions.

    if v < 0.0:              done = false
        return 0.0           result = 0.0
    return v * v             if v < 0.0:
                               result = 0.0
                      ->       done = true
                             if not(done):
                               result = v * v
                               done = true

A local holds the result, and a flag says that it is set. A loop is left as soon as the flag is set; all other
statements after such a return run only if it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ...engines import read_annotations, walk
from ...ir import Misfit, Operator, Type, nodes, types
from . import _constructors
from ._lowering import Lowering
from ._state import Early, Frame


def plan_early_returns(low: Lowering, function: Callable[..., Any], tree: ast.FunctionDef) -> Early | None:
    """Declare the locals for early returns; return None if a function returns only at its end."""
    # A `return` as the last statement of the body is not early; one inside the last statement may be.
    if not any(low.fact(may_return, statement) for statement in tree.body[:-1]) and not low.fact(nests, tree.body[-1]):
        return None
    done = low.state.bind("done", nodes.Const(False, Type.U1))
    annotation = read_annotations(function).get("return")
    if annotation is None:
        return Early(done, None)
    kind = _constructors.number_type(low, annotation)
    if kind is None:
        raise Misfit(f"an early `return` of a value that is not a number, in `{function.__name__}`")
    return Early(done, low.state.bind("result", nodes.Const(types.zero(kind), kind)))


def may_return(statement: ast.AST) -> bool:
    """Return True if a statement contains a `return`."""
    return any(isinstance(node, ast.Return) for node in walk(statement))


def nests(statement: ast.AST) -> bool:
    """Return True if a `return` stands inside another statement."""
    return may_return(statement) and not isinstance(statement, ast.Return)


def leave(low: Lowering, early: Early, frame: Frame, value: Any) -> None:
    """Emit a return of a value from any place in a function."""
    # Copies of an unrolled body stand one after another: there is no loop for `break` to leave.
    if any(is_static for is_static, _ in frame.loops):
        raise Misfit("an early `return` inside a static loop")
    state = low.state
    if early.result is not None:
        state.emit(nodes.Assign(early.result.name, low.ops.scalar(value), state.line))
        frame.result = early.result
    state.emit(nodes.Assign(early.done.name, nodes.Const(True, Type.U1), state.line))
    if frame.loops:
        state.emit(nodes.Break(state.line))
    frame.status = "return"


def guard_rest(low: Lowering, early: Early, frame: Frame, rest: list[ast.stmt]) -> None:
    """Lower the statements after one that may have returned."""
    state = low.state
    if frame.loops:
        # The rest of the loop around this one is guarded the same way, when that loop's statement is done.
        state.emit(nodes.If(early.done, (nodes.Break(state.line),), (), state.line))
        low.steps(rest)
    elif rest:
        with state.block() as written:
            low.steps(rest)
        state.emit(nodes.If(nodes.Unary(Operator.NOT, early.done, Type.U1), tuple(written), (), state.line))
