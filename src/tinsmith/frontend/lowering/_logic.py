"""Conditions: comparisons, `and`, `or`, and the choice between two values.

    if i > 0 and x[i - 1] > 0.0:             part = i > 0
        y[i] = 1.0                           if i > 0:
                                     ->        part = x[i - 1] > 0.0
                                             if part:
                                               y[i] = 1.0

Both engines evaluate the right side of `and`, and the sides of `a if c else b`, only if they are needed. Where that
matters, because memory is read or integers are divided, such an expression becomes an `if` statement.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, TypeAlias

from ...codegen import COMPARE
from ...ir import Misfit, Operator, Type, nodes, types
from ._lowering import Lowering
from ._operations import is_guarded
from ._values import Matrix, Scalar

Written: TypeAlias = Sequence[nodes.Stmt]


def compare(low: Lowering, operator: ast.cmpop, left: Any, right: Any) -> Any:
    """Lower one comparison."""
    if type(operator) in COMPARE:
        return low.binary(COMPARE[type(operator)], left, right)
    if low.state.is_static and isinstance(operator, ast.In | ast.NotIn):
        return (left in right) is isinstance(operator, ast.In)
    if low.state.is_static and isinstance(operator, ast.Is | ast.IsNot):
        return (left is right) is isinstance(operator, ast.Is)
    raise Misfit(f"the comparison `{type(operator).__name__}`")


def apply_logic(low: Lowering, is_and: bool, left: Any, right: Any, written: Written = ()) -> Any:
    """Lower `left and right` or `left or right`. `written` are the statements that compute `right`."""
    is_decided = not low.ops.is_run_time(left) and (bool(left) is is_and or not low.ops.is_run_time(right))
    # No branch follows that could hold the statements of `right`: vectors are combined without a short circuit.
    if is_decided or isinstance(left, Matrix) or isinstance(right, Matrix):
        low.state.body += written
    if is_decided and not low.ops.is_run_time(right):
        return (left and right) if is_and else (left or right)
    # `True and right`: the start of a chain of comparisons.
    if left is is_and:
        return right
    operator = Operator.AND if is_and else Operator.OR
    if isinstance(left, Matrix) or isinstance(right, Matrix):
        return low.ops.binary(operator, left, right)
    one, other = low.ops.scalar(left), low.ops.scalar(right)
    if not types.accepts(operator, one.type, other.type):
        raise Misfit(f"`{operator}` of {one.type} and {other.type}")
    # Nothing in `right` can go wrong, so both sides may be evaluated.
    if one.type == other.type == Type.U1 and not is_guarded(other) and not written:
        return nodes.Binary(operator, one, other, Type.U1)
    test = low.ops.truth(one)
    return (
        select_value(low, test, other, written, one, ()) if is_and else select_value(low, test, one, (), other, written)
    )


def select_value(low: Lowering, condition: Any, then: Any, before: Written, otherwise: Any, instead: Written) -> Any:
    """Lower `then if condition else otherwise`, each side with the statements that compute it."""
    if not any(low.ops.is_run_time(value) for value in (condition, then, otherwise)):
        return then if condition else otherwise
    if isinstance(condition, Matrix):
        raise Misfit("a vector as the condition of `x if condition else y`, which must be a number: use `select`")
    if all(isinstance(value, list | tuple) for value in (then, otherwise)):
        # Engines make a vector of either: the index of `x[(i, j) if i < j else (j, i)]`.
        then, otherwise = low.ops.matrix(then), low.ops.matrix(otherwise)
    if isinstance(then, Matrix) or isinstance(otherwise, Matrix):
        low.state.body += [*before, *instead]
        return low.ops.select(low.state.share(low.ops.truth(condition)), then, otherwise)
    one, other = low.ops.scalar(then), low.ops.scalar(otherwise)
    if not before and not instead and not is_guarded(one) and not is_guarded(other):
        return low.ops.select(condition, one, other)
    return _select_by_branch(low, low.ops.truth(condition), one, before, other, instead)


def _select_by_branch(
    low: Lowering, condition: Scalar, then: Scalar, before: Written, otherwise: Scalar, instead: Written
) -> Scalar:
    """Lower a selection to a branch that sets a local."""
    state = low.state
    if not state.is_quiet and not before and not instead:
        # Another call of the statement changes memory, and both sides are read after it.
        return state.defer(low.ops.select(condition, then, otherwise))
    local = state.local("part", types.promote(then.type, otherwise.type))
    zero: Scalar = nodes.Const(types.zero(local.type), local.type)
    body = (*before, nodes.Assign(local.name, then, state.line))
    orelse = (*instead, nodes.Assign(local.name, otherwise, state.line))
    # The local may begin with a side that can always be evaluated: no `else` is needed.
    if not instead and not is_guarded(otherwise):
        zero, orelse = otherwise, ()
    state.emit(nodes.Assign(local.name, zero, state.line))
    state.emit(nodes.If(condition, body, orelse, state.line))
    return local
