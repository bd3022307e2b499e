"""Expressions: from a node of Python's tree to its value."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...codegen import BINARY, UNARY
from ...engines import PYTHON_OPERATORS
from ...ir import Misfit
from . import _calls, _elements
from ._assignments import assign
from ._logic import apply_logic, compare, select_value
from ._lowering import Lowering
from ._state import ENGINE
from ._targets import give, list_items, unpack_starred
from ._values import is_number, plain


def value_of(low: Lowering, node: ast.expr) -> Any:
    """Return the value of an expression. Raise NotCovered, or Misfit for values that do not fit."""
    if isinstance(node, ast.Constant):
        return node.value
    known = _KINDS.get(type(node))
    if known is None:
        raise low.make_refusal(f"`{ast.unparse(node)}`", node)
    return known(low, node)


def _name(low: Lowering, node: ast.Name) -> Any:
    is_local, value = low.state.find(node.id)
    if is_local:
        return value
    if node.id == ENGINE:
        return low.engine.lang
    try:
        return low.state.frame.source.lookup(node.id)
    except KeyError:
        raise low.make_refusal(f"the name `{node.id}`, which is not defined", node) from None


def _binary(low: Lowering, node: ast.BinOp) -> Any:
    left, right = low.python_value(node.left), low.python_value(node.right)
    is_numpy = isinstance(left, np.generic) or isinstance(right, np.generic)
    if is_numpy and is_number(plain(left)) and is_number(plain(right)) and not isinstance(node.op, ast.MatMult):
        # The engines let NumPy compute: a product of float32 is rounded to float32.
        return PYTHON_OPERATORS[BINARY[type(node.op)]](left, right)
    left, right = plain(left), plain(right)
    if isinstance(node.op, ast.MatMult):
        return _calls.apply(low, low.language.matrix_operation("matmul"), [left, right], {}, node)
    return low.binary(BINARY[type(node.op)], left, right)


def _unary(low: Lowering, node: ast.UnaryOp) -> Any:
    value = low.python_value(node.operand)
    if isinstance(node.op, ast.UAdd):
        return value
    if not low.ops.is_run_time(value):
        try:
            return {"neg": lambda: -value, "not": lambda: not value, "~": lambda: ~value}[UNARY[type(node.op)]]()
        except TypeError as reason:
            raise Misfit(f"`{ast.unparse(node)}`: {reason}") from None
    return low.ops.unary(UNARY[type(node.op)], value)


def _bool(low: Lowering, node: ast.BoolOp) -> Any:
    is_and = isinstance(node.op, ast.And)
    if low.state.is_static:
        # Python's own rule: in `static(a is not None and a.size > 0)` the second operand may have no value.
        value: Any = is_and
        for operand in node.values:
            value = low.value(operand)
            if bool(value) is not is_and:
                break
        return value
    return _chain(low, is_and, node.values)


def _chain(low: Lowering, is_and: bool, operands: list[ast.expr]) -> Any:
    """Lower `a and b and c` as `a and (b and c)`: an operand is evaluated only if those before it do not decide."""
    left = low.value(operands[0])
    if len(operands) == 1:
        return left
    right, written = low.aside(lambda: _chain(low, is_and, operands[1:]))
    return apply_logic(low, is_and, left, right, written)


def _compare(low: Lowering, node: ast.Compare) -> Any:
    # Once each: in `a < f(x) < c` the middle one is compared twice.
    values = [low.value(operand) for operand in (node.left, *node.comparators)]
    result: Any = True
    for operator, left, right in zip(node.ops, values, values[1:], strict=False):
        result = apply_logic(low, True, result, compare(low, operator, left, right))
    return result


def _ternary(low: Lowering, node: ast.IfExp) -> Any:
    if low.state.is_static or low.is_static(node.test):
        taken, _ = (node.body, node.orelse) if low.evaluate_static(node.test) else (node.orelse, node.body)
        # The engines run the calls of both sides, also where the condition is static.
        if not low.state.is_quiet and not low.state.is_static:
            values = {part: low.value(part) for part in (node.body, node.orelse)}
            return values[taken]
        return low.value(taken)
    test = low.value(node.test)
    then, otherwise = (low.aside(lambda part=part: low.value(part)) for part in (node.body, node.orelse))
    return select_value(low, test, *then, *otherwise)


def _lower_named_expression(low: Lowering, node: ast.NamedExpr) -> Any:
    """Lower `(a := value)`: assign at once, and return the variable."""
    value = low.value(node.value)
    if low.state.is_static or low.is_static(node.value):
        give(low, node.target, value)
        return value
    assign(low, node.target, value)
    return low.value(node.target)


def _dict(low: Lowering, node: ast.Dict) -> Any:
    result: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            result.update(low.value(value))
        else:
            result[low.value(key)] = low.value(value)
    return result


def _iterate_generators(low: Lowering, generators: list[ast.comprehension]) -> Iterator[None]:
    """Step through a comprehension. Its names keep their values while the caller uses them."""
    if not generators:
        yield
        return
    first, *others = generators
    for item in list_items(low.evaluate_static(first.iter)):
        with low.state.scope():
            give(low, first.target, item)
            if all(low.evaluate_static(condition) for condition in first.ifs):
                yield from _iterate_generators(low, others)


_KINDS: dict[type[ast.expr], Callable[[Lowering, Any], Any]] = {
    ast.Name: _name,
    ast.Attribute: lambda low, node: _elements.attribute(low, low.value(node.value), node),
    ast.Subscript: lambda low, node: _elements.read(low, _elements.place(low, node)),
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _bool,
    ast.Compare: _compare,
    ast.IfExp: _ternary,
    ast.NamedExpr: _lower_named_expression,
    ast.Tuple: lambda low, node: tuple(unpack_starred(low, node.elts)),
    ast.List: lambda low, node: unpack_starred(low, node.elts),
    ast.Dict: _dict,
    ast.ListComp: lambda low, node: [low.value(node.elt) for _ in _iterate_generators(low, node.generators)],
    ast.DictComp: lambda low, node: {
        low.value(node.key): low.value(node.value) for _ in _iterate_generators(low, node.generators)
    },
    ast.Call: _calls.lower_call,
    ast.Slice: lambda low, node: slice(
        *(None if part is None else low.value(part) for part in (node.lower, node.upper, node.step))
    ),
    # Only prints and messages of assertions take one. The values in it are known to the run alone.
    ast.JoinedStr: lambda _low, node: ast.unparse(node)[2:-1],
}
