"""Operations on values of any kind: on known numbers, on vectors entry by entry, and on expressions with their types.

    3 + 4                              ->    7
    Vector([a, b]) * 2.0               ->    Matrix of a * 2.0 and b * 2.0
    n / 2, of an n that is i32         ->    n / 2 of type f32, the default float

The types follow the engines' rules (`ir.types`), under the default types that the engine was started with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from ...engines import PYTHON_OPERATORS
from ...ir import Deadly, Defaults, Misfit, NotANumber, Operator, Type, nodes, types, walk
from ._values import ArrayValue, Matrix, Scalar, is_expression, is_number, kind_of


class Operations:
    """Operations under one set of default types."""

    def __init__(self, defaults: Defaults, entries_of: Callable[[object], Any]) -> None:
        self.defaults = defaults
        self._entries_of = entries_of

    # From Python's values to the run's --------------------------------------------------------

    def is_run_time(self, value: object) -> bool:
        """Return True if a value is known only at run time."""
        return is_expression(value) or isinstance(value, Matrix)

    def _are_known(self, *values: Any) -> bool:
        """Return True if Python can compute with these values: nothing in them is known only at run time.

        Beside a captured vector, `(i, j) + offset`, a list or tuple is a vector; otherwise Python joins lists.
        """
        if any(map(self.is_run_time, values)):
            return False
        listed = [one for one in values if isinstance(one, list | tuple) and any(map(self.is_run_time, one))]
        return not listed or all(self._entries_of(value) is None for value in values)

    def scalar(self, value: Any) -> Scalar:
        """Return a number as an expression. Raise Misfit for any other value."""
        if is_expression(value):
            return value
        if isinstance(value, ArrayValue):
            raise Misfit(f"{kind_of(value)}, which is not a number", "Take an element of it, by an index")
        if not is_number(value):
            raise NotANumber(kind_of(value), value)
        return self.constant(value, types.of_literal(value, self.defaults))

    def constant(self, value: bool | float, kind: Type) -> Scalar:
        """Return a known number as a constant of a type. Raise Misfit if the type cannot hold it."""
        if isinstance(value, int) and not types.fits(value, kind):
            raise Misfit(f"the number {value}, which is out of the range of {kind}")
        return nodes.Const(_own_number(value), kind)

    def tensor(self, value: Any) -> Matrix | Scalar:
        """Return a value as an expression or a matrix of expressions; lists and Python-scope matrices are converted."""
        if isinstance(value, Matrix):
            return value
        listed = self._entries_of(value)
        if listed is not None:
            return self.matrix(listed)
        return self.matrix(value) if isinstance(value, list | tuple) else self.scalar(value)

    def matrix(self, rows: Any, kind: Type | None = None) -> Matrix:
        """Build what `Vector([...])` and `Matrix([[...]])` make of their entries."""
        rows = rows.rows if isinstance(rows, Matrix) else list(rows)
        rows = [row.rows if isinstance(row, Matrix) else row for row in rows]
        nested = bool(rows) and isinstance(rows[0], list | tuple)
        shape = (len(rows), len(rows[0])) if nested else (len(rows),)
        flat = [entry for row in rows for entry in row] if nested else rows
        return self.build_matrix(flat, shape, kind)

    def build_matrix(self, entries: list[Any], shape: tuple[int, ...], kind: Type | None) -> Matrix:
        """Build a matrix of entries of one type: `kind`, or their common type if it is None."""
        numbers = [self.scalar(entry) for entry in entries]
        size = shape[0] if len(shape) == 1 else shape[0] * shape[1]
        if not numbers or size != len(numbers):
            raise Misfit(f"{len(numbers)} numbers for a matrix of shape {shape}")
        kinds = [self.defaults.ip if isinstance(entry, bool) else self.scalar(entry).type for entry in entries]
        common = kind or reduce(types.promote, kinds)
        return Matrix(shape, tuple(self._cast(number, common) for number in numbers))

    # Operations -------------------------------------------------------------------------------

    def _cast(self, value: Scalar, kind: Type) -> Scalar:
        if value.type == kind:
            return value
        if isinstance(value, nodes.Const):
            number = value.value
            if types.is_float(kind):
                # Even an f16 has these integers exactly.
                is_exact = isinstance(number, int) and abs(number) < 2**11
                is_rounded = value.type == Type.F64 and kind == Type.F32
                return nodes.Const(float(number), kind) if is_exact or is_rounded else nodes.Cast(value, kind)
            if kind == Type.U1:
                return nodes.Const(bool(number), kind) if isinstance(number, int) else nodes.Cast(value, kind)
            whole = isinstance(number, int) and types.fits(int(number), kind)
            return nodes.Const(int(number), kind) if whole else nodes.Cast(value, kind)
        return nodes.Cast(value, kind)

    def cast(self, value: Any, kind: Type) -> Any:
        """Convert a value to a type, entry by entry."""
        tensor = self.tensor(value)
        return self.each(lambda one: self._cast(one, kind), tensor)

    def with_bits(self, value: Any, kind: Type) -> Any:
        """Read the bits of a number as another type of the same width. Raise Deadly if the widths differ."""
        number = self.scalar(value)
        if types.width(number.type) != types.width(kind):
            words = f"`bit_cast` of {number.type} to {kind}, a type of another width"
            raise Deadly(words, f"Cast to a type of {types.width(number.type)} bits")
        return nodes.Cast(number, kind, keeps_bits=True)

    def each(self, change: Callable[..., Any], *values: Matrix | Scalar) -> Any:
        """Apply an operation entry by entry; a scalar is used with every entry."""
        shapes = {value.shape for value in values if isinstance(value, Matrix)}
        if not shapes:
            return change(*values)
        if len(shapes) > 1:
            raise Misfit(f"an operation on operands of the shapes {' and '.join(map(str, sorted(shapes)))}")
        shape = shapes.pop()
        size = len(next(value for value in values if isinstance(value, Matrix)).entries)
        columns = [value.entries if isinstance(value, Matrix) else (value,) * size for value in values]
        return Matrix(shape, tuple(change(*row) for row in zip(*columns, strict=True)))

    def unary(self, operator: Operator, value: Any) -> Any:
        """Apply an operation to one value."""

        def one(number: Scalar) -> Scalar:
            self._check(operator, number.type)
            return nodes.Unary(operator, number, types.of_unary(operator, number.type, self.defaults))

        return self.each(one, self.tensor(value))

    def binary(self, operator: Operator, left: Any, right: Any) -> Any:
        """Apply an operation to two values: Python's own if both are known."""
        if operator in PYTHON_OPERATORS and self._are_known(left, right):
            return PYTHON_OPERATORS[operator](left, right)

        def two(one: Scalar, other: Scalar) -> Scalar:
            self._check(operator, one.type, other.type)
            kind = types.of_operation(operator, one.type, other.type, self.defaults)
            return nodes.Binary(operator, one, other, kind)

        values = [self.tensor(left), self.tensor(right)]
        if operator == "atan2" and any(isinstance(value, Matrix) for value in values):
            # Of vectors both engines compute it in f32, even of f64 (Taichi 1.7.4, Quadrants 1.3.3).
            values = [self.cast(value, Type.F32) for value in values]
        return self.each(two, *values)

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        """Select one of two values; both are evaluated."""

        def pick(test: Scalar, one: Scalar, other: Scalar) -> Scalar:
            kind = types.promote(one.type, other.type)
            return nodes.Select(self.truth(test), self._cast(one, kind), self._cast(other, kind), kind)

        return self.each(pick, self.tensor(condition), self.tensor(then), self.tensor(otherwise))

    def truth(self, value: Any) -> Scalar:
        """Convert a number to a condition that is true if it is not 0."""
        number = self.scalar(value)
        if number.type == Type.U1:
            return number
        if isinstance(number, nodes.Const):
            return nodes.Const(bool(number.value), Type.U1)
        return nodes.Binary(Operator.NE, number, nodes.Const(0, number.type), Type.U1)

    def _check(self, operator: Operator, *kinds: Type) -> None:
        if not types.accepts(operator, *kinds):
            # Engines refuse some of these with a message, and end the process on others (`x[i] &= 1`, `clz(x[i])`).
            words = f"`{operator}` of {' and '.join(kinds)}"
            raise Deadly(words, "Convert the operands first" if any(map(types.is_float, kinds)) else "Use other types")


def _own_number(value: bool | float) -> bool | int | float:
    """Convert a number of a subclass, such as a member of an `IntEnum`, to Python's own type.

    A constant is printed, compared and used as a key: a subclass may do all of that differently.
    """
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value)


def is_guarded(expression: Scalar) -> bool:
    """Return True if an expression must not be evaluated needlessly: it reads memory or divides integers."""
    # A condition beside it may be what keeps an index inside its array, or a divisor from being 0.
    return any(
        isinstance(part, nodes.Load)
        or (
            isinstance(part, nodes.Binary)
            and part.operator in (Operator.FLOOR_DIV, Operator.MOD)
            and not types.is_float(part.type)
        )
        for part in walk.parts(expression)
    )
