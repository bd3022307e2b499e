"""Divisions of integers that an engine may know when it compiles, written out.

Both engines (Taichi 1.7.4, Quadrants 1.3.3) compute `//` and `%` of known signed integers with C's rule, which rounds
towards zero, where the same division at run time follows Python's rule and rounds down: after `k = 3`, `-k // 2` is -1
instead of -2, and `-k % 2` is -1 instead of 1. `raw_div` and `raw_mod` round towards zero in both cases, so a division
whose operands are both possibly known, and may be negative, is made of them.

    row = -7 // 2                 ->     row = -4
    row = -k // n                        number = -k          (k and n are locals that an engine may know)
                                         rest = raw_mod(number, n)
                                         row = raw_div(number, n) - select(rest != 0 and (rest ^ n) < 0, 1, 0)

What an engine knows is overestimated: a value counts as unknown only where it depends on an argument, a size, a draw,
or an element that the kernel does not set to a possibly known value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..engines import PYTHON_OPERATORS
from ..ir import Names, Operator, Type, cast, compare, constant, either, nodes, types, walk

_DIVISIONS = (Operator.FLOOR_DIV, Operator.MOD)
_KEEP_SIGN = frozenset({"+", "*", "//", "%", "min", "max", "&", "|", "^", ">>", "raw_div", "raw_mod"})
"""Operators whose result is not negative where neither operand is."""


def write_out_divisions(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return the kernel with Python's rule for every division of integers; the same object if nothing changes."""
    if not any(map(_is_division, walk.parts_in(kernel.body))):
        return kernel
    writer = _Writer(kernel)
    body = tuple(writer.block(kernel.body))
    return replace(kernel, body=body, locals=writer.names.types) if writer.is_changed else kernel


def _is_division(expr: nodes.Expr) -> bool:
    return isinstance(expr, nodes.Binary) and expr.operator in _DIVISIONS and expr.type in types.SIGNED


class _Origin(NamedTuple):
    """A value that a local or an array may have; a loop's variable has those from `value` to before `end`."""

    name: str
    value: nodes.Expr
    end: nodes.Expr | None = None


class _Values:
    """What is known of the values that locals and arrays of a kernel may have.

    Attributes:
        known: those that an engine may know when it compiles.
        natural: those that are surely not negative.
    """

    def __init__(self, kernel: nodes.Kernel) -> None:
        self._origins = list(_origins(kernel))
        names = {one.name for one in self._origins}
        self.known = self._collect(_gets_known)
        # The other way round: a name is not natural if one of its values may be negative, given those found so. So
        # `k = k + 1` in a loop, after `k = 0`, stays natural.
        self.natural = names - self._collect(lambda one, others: not _is_natural(one.value, names - others))

    def _collect(self, holds: Callable[[_Origin, set[str]], bool]) -> set[str]:
        """Return the names with an origin for which something holds, given the names found so far (a fixed point)."""
        members, is_growing = set[str](), True
        while is_growing:
            new = {one.name for one in self._origins if one.name not in members and holds(one, members)}
            members, is_growing = members | new, bool(new)
        return members


def _origins(kernel: nodes.Kernel) -> Iterator[_Origin]:
    # Cells are 0 when the kernel starts, which an engine knows.
    for name in kernel.cells:
        yield _Origin(name, constant(0, kernel.arrays[name].type))
    for one in walk.statements(kernel.body):
        match one:
            case nodes.Assign(name, value):
                yield _Origin(name, value)
            case nodes.Store(array=name, value=value):
                yield _Origin(name, value)
            case nodes.Atomic(array=name, value=value, result=result):
                old = nodes.Load(name, one.index, one.entry, kernel.arrays[name].type)
                # Whatever the operator is: a difference may be negative, and is known where both operands are.
                yield _Origin(name, nodes.Binary(Operator.SUB, old, value, old.type))
                if result is not None:
                    yield _Origin(result, old)
            case nodes.For(names, bounds):
                yield from (_Origin(name, *bound) for name, bound in zip(names, bounds, strict=True))


def _gets_known(one: _Origin, known: set[str]) -> bool:
    if not _may_be_known(one.value, known):
        return False
    if one.end is None:
        return True
    # Engines do not unroll loops: they know a loop's name only where there is one iteration.
    is_many = (
        isinstance(one.value, nodes.Const) and isinstance(one.end, nodes.Const) and one.end.value - one.value.value > 1
    )
    return not is_many and _may_be_known(one.end, known)


def _may_be_known(expr: nodes.Expr, known: set[str]) -> bool:
    """Return True if an engine may know the value of an expression at compile time."""
    match expr:
        case nodes.Argument() | nodes.Size():
            return False
        case nodes.Local(name) | nodes.Load(name):
            # Of an element, the engine follows what was stored, whatever the index is.
            return name in known
    return all(_may_be_known(part, known) for part in walk.operands(expr))


def _is_natural(expr: nodes.Expr, natural: set[str]) -> bool:
    """Return True if an expression is known to be 0 or more."""
    match expr:
        case nodes.Const(value):
            return value >= 0
        case nodes.Size():
            return True
        case nodes.Local(name):
            return name in natural
        case nodes.Cast(value, kind, False):
            return (kind in types.SIGNED or types.is_float(kind)) and _is_natural(value, natural)
        case nodes.Binary(sign, left, right):
            return sign in _KEEP_SIGN and _is_natural(left, natural) and _is_natural(right, natural)
        case nodes.Select(_, then, otherwise):
            return _is_natural(then, natural) and _is_natural(otherwise, natural)
    return False


class _Writer:
    def __init__(self, kernel: nodes.Kernel) -> None:
        self.names = Names.of_kernel(kernel)
        self.values = _Values(kernel)
        self.is_changed = False
        self._before: list[nodes.Stmt] = []

    def block(self, body: Sequence[nodes.Stmt]) -> Iterator[nodes.Stmt]:
        for one in body:
            line = one.line
            changed = walk.with_expressions(one, lambda expr, line=line: self._expression(expr, line))
            # The locals that the statement's divisions need. A loop's bounds are computed once, so before it is right.
            yield from self._before
            self._before.clear()
            yield walk.with_bodies(changed, lambda inner: tuple(self.block(inner)))

    def _expression(self, expr: nodes.Expr, line: int) -> nodes.Expr:
        changed = walk.rebuild(expr, lambda part: self._expression(part, line))
        if (
            not isinstance(changed, nodes.Binary)
            or not _is_division(expr)
            or not _may_be_known(expr, self.values.known)
        ):
            return changed
        if all(_is_natural(part, self.values.natural) for part in walk.operands(expr)):
            return changed
        self.is_changed = True
        return self._round_down(changed, line)

    def _round_down(self, one: nodes.Binary, line: int) -> nodes.Expr:
        """Return a division that rounds down, whether the engine folds it or the machine computes it."""
        kind = one.type
        left, right = self._simple(one.left, "number", line), cast(self._simple(one.right, "divisor", line), kind)
        if isinstance(left, nodes.Const) and isinstance(right, nodes.Const) and right.value:
            return nodes.Const(PYTHON_OPERATORS[one.operator](left.value, right.value), kind)
        # The rest has the sign of `left`. Where that is not the divisor's, and the rest is not 0, rounding towards zero
        # was rounding up: the quotient is one less, and the rest a divisor more.
        rest = self._simple(nodes.Binary(Operator.RAW_MOD, left, right, kind), "rest", line)
        zero = constant(0, kind)
        if isinstance(right, nodes.Const):
            is_off = compare(Operator.LT if right.value > 0 else Operator.GT, rest, zero)
        else:
            differs = compare(Operator.LT, nodes.Binary(Operator.BIT_XOR, rest, right, kind), zero)
            is_off = nodes.Binary(Operator.AND, compare(Operator.NE, rest, zero), differs, Type.U1)
        if one.operator == Operator.MOD:
            return nodes.Binary(Operator.ADD, rest, either(is_off, right, zero), kind)
        quotient = nodes.Binary(Operator.RAW_DIV, left, right, kind)
        return nodes.Binary(Operator.SUB, quotient, either(is_off, constant(1, kind), zero), kind)

    def _simple(self, expr: nodes.Expr, wish: str, line: int) -> nodes.Expr:
        """Return an expression that may be used several times: a number, or a local that is assigned beforehand."""
        if isinstance(expr, nodes.Const | nodes.Local):
            return expr
        local = self.names.local(wish, expr.type)
        self._before.append(nodes.Assign(local.name, expr, line))
        return local
