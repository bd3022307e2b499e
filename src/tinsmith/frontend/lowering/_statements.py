"""Statements: the table of their handlers, and those for branches, `break`, `continue` and assertions."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from ...engines import walk
from ...ir import NotCovered, nodes
from .. import lowering
from .._effects import changes_of
from .._fingerprints import MISSING
from .._nodes import resolve_callee
from .._read import Source
from . import _assignments, _loops
from ._lowering import Lowering
from ._values import BoundFunction, Struct


def run(low: Lowering, statement: ast.stmt) -> None:
    """Lower one statement. Raise NotCovered or Misfit."""
    known = _KINDS.get(type(statement))
    if known is None:
        raise low.make_refusal(f"`{ast.unparse(statement).splitlines()[0]}`", statement)
    quiet = is_quiet(low, *_own_expressions(low, statement))
    # A result is computed where the call's own statement uses it, after all calls of that.
    low.state.is_quiet = quiet and (low.state.frame.is_quiet or not isinstance(statement, ast.Return))
    known(low, statement)


def _own_expressions(low: Lowering, statement: ast.stmt) -> list[ast.AST]:
    """Return the parts of a statement that must have no side effects, without the statements inside it.

    For a statement that is only a call of an atomic, these are the atomic's arguments.
    """
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return [statement.test]
    return [statement.iter] if isinstance(statement, ast.For) else _list_parts_before_change(low, statement)


def _expression(low: Lowering, statement: ast.Expr) -> None:
    # Not a docstring.
    if not isinstance(statement.value, ast.Constant):
        low.value(statement.value)


def _branch(low: Lowering, statement: ast.If) -> None:
    # In a function in plain Python an `if` is Python's, which opens no scope.
    if low.state.is_static:
        low.steps(statement.body if low.value(statement.test) else statement.orelse)
        return
    if low.is_static(statement.test):
        low.run(statement.body if low.value(statement.test) else statement.orelse)
        return
    condition = low.ops.truth(low.number(statement.test))
    line = low.state.line
    body, orelse = (_arm(low, arm) for arm in (statement.body, statement.orelse))
    chosen = body if isinstance(condition, nodes.Const) and condition.value else orelse
    # Taichi 1.7.4 cannot compile every nest of branches with an `if False:` (tests/bridge/test_known_conditions.py).
    # A `break` stays in its branch: statements may follow it here, and nothing may follow it in its block.
    if isinstance(condition, nodes.Const) and not any(isinstance(one, nodes.Break | nodes.Continue) for one in chosen):
        low.state.body += chosen
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
        # Emitted as a statement of the arm: the run decides whether it is reached.
        frame.status = ""
    return tuple(written)


def _leave(low: Lowering, statement: ast.Break | ast.Continue) -> None:
    frame = low.state.frame
    word = "break" if isinstance(statement, ast.Break) else "continue"
    if not frame.loops:
        raise low.make_refusal(f"`{word}` outside a loop", statement)
    is_unrolled, branches = frame.loops[-1]
    if is_unrolled and branches:
        raise low.make_refusal(f"`{word}` of a static loop inside a branch whose condition is not static", statement)
    if not is_unrolled:
        low.state.emit((nodes.Break if word == "break" else nodes.Continue)(low.state.line))
    # What follows in its block is never reached, and not lowered.
    frame.status = word


def _assertion(low: Lowering, statement: ast.Assert) -> None:
    """Lower an assertion: where the engine does not check it, only what the condition changes.

    Engines run the atomic of `assert atomic_add(x[i], v) >= 0` even if they do not check it.
    """
    if low.keeps_assertions:
        condition = low.ops.truth(low.number(statement.test))
        low.state.emit(nodes.Assert(condition, _message(low, statement), low.state.line))
    elif not low.state.is_quiet:
        low.number(statement.test)


def _message(low: Lowering, statement: ast.Assert) -> str:
    """Return the message of an assertion; its source if it has numbers of the run in it, `"%d" % i`."""
    if statement.msg is None:
        return ast.unparse(statement.test)
    try:
        return str(low.value(statement.msg))
    except NotCovered:
        return ast.unparse(statement.msg)


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
    ast.Return: lambda low, node: lowering.lower_return(low, node),  # noqa: PLW0108  # loads its file then
    ast.Pass: _nothing,
    ast.Assert: _assertion,
}


# Side effects -----------------------------------------------------------------------------------
# Where the calls of a statement leave memory and the caller's locals as they are, its parts may be computed in any
# order, and what is used several times may be put in a local. Where that is not known, the answer is no.


# Beginnings of names. A draw changes the state of the generator.
_CHANGING = ("atomic_", "random", "append", "activate", "fill", "sync")


def is_quiet(low: Lowering, *expressions: ast.AST | None) -> bool:
    """Return True if no call in these expressions has a side effect, and no `:=` is among them."""

    def value(node: ast.expr) -> Any:
        return _meaning(low, node)

    if any(low.fact(_assigns, one) for one in expressions if one is not None):
        return False
    seen: set[Any] = set()
    return all(_are_calls_quiet(low, expression, value, seen) for expression in expressions if expression is not None)


def _list_parts_before_change(low: Lowering, statement: ast.AST) -> list[ast.AST]:
    """Return the arguments of the call if a statement is only a call of an atomic; else the whole statement.

    Such an atomic changes memory only after its arguments are evaluated, so it does not affect their order.
    """
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return [statement]
    call = statement.value
    is_atomic = low.language.name_of(_meaning(low, call.func)).startswith("lang.ops.atomic")
    return [*call.args] if is_atomic else [statement]


def _are_calls_quiet(low: Lowering, tree: ast.AST, meaning: Callable[[ast.expr], Any], seen: set[Any]) -> bool:
    """Return True if no call in a tree has a side effect. `seen` are functions that need not be looked into again."""
    return all(_is_call_quiet(low, node, meaning, seen) for node in low.fact(_calls, tree))


def _calls(tree: ast.AST) -> tuple[ast.Call, ...]:
    return tuple(node for node in walk(tree) if isinstance(node, ast.Call))


def _assigns(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.NamedExpr) for node in walk(tree))


def _is_call_quiet(low: Lowering, node: ast.Call, meaning: Callable[[ast.expr], Any], seen: set[Any]) -> bool:
    name = resolve_callee(node)
    if name.startswith(_CHANGING):
        return False
    value = meaning(node.func)
    if value is MISSING:
        # A method of a local has no value before the run: its name must say that it is `v.norm` or the like.
        return low.language.matrix_operation(name) is not None or name == "get_shape"
    function = low.engine.inner_function(value.function if isinstance(value, BoundFunction) else value)
    if function is None:
        return (
            low.language.name_of(value) != "" or not callable(value) or hasattr(builtins, name) or _is_type(low, value)
        )
    # Of a recursive function each call would be looked into again, and the calls inside that, without end.
    if function in seen:
        return True
    seen.add(function)
    return _is_function_quiet(low, low.read(function), seen)


def _is_type(low: Lowering, value: Any) -> bool:
    language = low.language
    return language.matrix_type(value) is not None or language.struct_type(value) is not None or low.engine.owns(value)


def _is_function_quiet(low: Lowering, source: Source, seen: set[Any]) -> bool:
    # A store to one of these changes the caller's own local or array.
    references = {name for name in source.parameters if source.is_template(name)}
    for node in source.nodes:
        for target in _targets(node):
            if not isinstance(target, ast.Name) or target.id in references:
                return False
    return all(_are_calls_quiet(low, statement, source.value, seen) for statement in source.tree.body)


def _targets(node: ast.AST) -> list[ast.expr]:
    return [node.target] if isinstance(node, ast.NamedExpr) else [one.target for one in changes_of(node)]


def _meaning(low: Lowering, node: ast.expr) -> Any:
    """Return the value that a name, or an attribute of one, has in the statement; MISSING for other expressions."""
    if isinstance(node, ast.Attribute):
        value = _meaning(low, node.value)
        if isinstance(value, Struct):
            method = value.methods.get(node.attr, MISSING)
            return value.members.get(node.attr, method)
        return MISSING if value is MISSING else getattr(value, node.attr, MISSING)
    if not isinstance(node, ast.Name):
        return MISSING
    is_local, value = low.state.find(node.id)
    return value if is_local else low.state.frame.source.value(node)
