"""Operations on values of any kind: scalars by the rules of an `Arithmetic`, vectors and matrices entry by entry."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ._arithmetic import Arithmetic
from ._numbers import KINDS, PYTHON, Rule, promote
from ._values import Matrix, flatten


class Operations:
    """Operations with one kind of arithmetic.

    Args:
        arithmetic: operations on scalars.
        rows_of: returns the numbers of an engine's Python-scope vector or matrix; None for anything else.
        method_of: returns the engine's function that implements a method of vectors and matrices.
    """

    call: Callable[..., Any]
    """Calls a method of vectors and matrices, given the engine's function, the vector or matrix and the arguments."""

    def __init__(
        self, arithmetic: Arithmetic, rows_of: Callable[[Any], list[Any] | None], method_of: Callable[[str], Any]
    ) -> None:
        self.defaults = arithmetic.defaults
        self.arithmetic = arithmetic
        self.casts = arithmetic.casts
        self.rows_of = rows_of
        self.method_of = method_of

    # Vectors and matrices ----------------------------------------------------------------------

    def tensor(self, value: Any) -> Any:
        """Convert a list, array or engine's matrix to a matrix; return numbers and matrices unchanged."""
        if type(value) in KINDS or isinstance(value, Matrix | bool | int | float):
            return value
        rows = self.rows_of(value)
        if rows is None and isinstance(value, np.ndarray):
            rows = value.tolist()
        if rows is None and isinstance(value, list | tuple):
            rows = list(value)
        if rows is None:
            raise TypeError(f"expected a number, vector or matrix, got a {type(value).__name__}")
        return self.matrix(rows)

    def matrix(self, rows: Any, kind: str | None = None) -> Matrix:
        """Build a vector from a list, or a matrix from nested lists, of one type."""
        rows = rows.rows if isinstance(rows, Matrix) else rows
        rows = [row.rows if isinstance(row, Matrix) else row for row in rows]
        is_nested = bool(rows) and isinstance(rows[0], list | tuple)
        shape = (len(rows), len(rows[0])) if is_nested else (len(rows),)
        return self.build_matrix([entry for row in rows for entry in row] if is_nested else rows, shape, kind)

    def build_matrix(self, entries: Sequence[Any], shape: tuple[int, ...], kind: str | None = None) -> Matrix:
        """Build a matrix from its entries, converted to a type: the given one, or their common type."""
        size = shape[0] if len(shape) == 1 else shape[0] * shape[1]
        if size != len(entries) or not entries:
            raise ValueError(f"cannot build a matrix of shape {shape} from {len(entries)} numbers")
        kinds = [self.defaults.ip if isinstance(one, bool) else self.arithmetic.kind_of(one) for one in entries]
        cast = self.casts[kind or reduce(promote, kinds)]
        return Matrix(shape, [cast(one) for one in entries], self)

    def each(self, change: Callable[..., Any], *values: Any) -> Any:
        """Apply a function entry by entry; a number is combined with every entry."""
        shapes = {one.shape for one in values if isinstance(one, Matrix)}
        if not shapes:
            return change(*values)
        if len(shapes) > 1:
            raise ValueError(f"operands do not have one shape: {' and '.join(map(str, sorted(shapes)))}")
        columns = [one.entries if isinstance(one, Matrix) else itertools.repeat(one) for one in values]
        return Matrix(shapes.pop(), [change(*row) for row in zip(*columns, strict=False)], self)

    # Operations --------------------------------------------------------------------------------

    def binary(self, name: str) -> Rule:
        """Return the function that computes a binary operation on values of any kind."""
        rules, build = self.arithmetic.rules_for(name), self.arithmetic.rule_for

        def of_any(left: Any, right: Any) -> Any:
            if name in PYTHON and not (_is_run_value(left) or _is_run_value(right)):
                # Lists, strings, dtypes and None are known before the run.
                return PYTHON[name](left, right)
            left, right = self.tensor(left), self.tensor(right)
            if not isinstance(left, Matrix) and not isinstance(right, Matrix):
                return build(name, type(left), type(right))(left, right)
            if name == "atan2":
                # Both engines compute it in f32 for vectors, even of f64.
                left, right = self.cast(left, "f32"), self.cast(right, "f32")
            return self.each(lambda one, other: build(name, type(one), type(other))(one, other), left, right)

        def operate(left: Any, right: Any) -> Any:
            rule = rules.get((type(left), type(right)))
            return of_any(left, right) if rule is None else rule(left, right)

        return operate

    def unary(self, name: str) -> Rule:
        """Return the function that computes a unary operation on a number, vector or matrix."""
        one = self.arithmetic.unary

        def operate(value: Any) -> Any:
            if type(value) in KINDS:
                return one(name, value)
            return self.each(lambda entry: one(name, entry), self.tensor(value))

        return operate

    def cast(self, value: Any, kind: str) -> Any:
        """Convert a value to a type, entry by entry."""
        return self.each(self.casts[kind], self.tensor(value))

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        """Choose between two values, entry by entry, in their common type."""
        return self.each(
            lambda test, one, other: self.to_common_type(one if test else other, other if test else one),
            *(self.tensor(value) for value in (condition, then, otherwise)),
        )

    def to_common_type(self, value: Any, other: Any) -> Any:
        """Convert a value to the common type of it and `other`."""
        if isinstance(value, Matrix) or isinstance(other, Matrix):
            return self.each(self.to_common_type, self.tensor(value), self.tensor(other))
        kinds = self.arithmetic.kind_of(value), self.arithmetic.kind_of(other)
        return self.casts[promote(*kinds)](value)

    # Functions of vectors and matrices -----------------------------------------------------------

    def require_rank(self, value: Any, rank: int = 0) -> Matrix:
        """Return a value as a matrix. Raise TypeError for a number, or if it does not have `rank` dims (0: any)."""
        matrix = self.tensor(value)
        if not isinstance(matrix, Matrix) or (rank and len(matrix.shape) != rank):
            raise TypeError("an operand must be a vector or matrix, but is a number or has the wrong rank")
        return matrix

    def fold(self, name: str, value: Any) -> Any:
        """Combine the entries by a binary operation, from the first to the last."""
        return reduce(self.binary(name), self.require_rank(value).entries)

    def dot(self, left: Any, right: Any) -> Any:
        """Return the dot product of two vectors."""
        return self.fold("+", self.binary("*")(self.require_rank(left, 1), self.require_rank(right, 1)))

    def norm_sqr(self, value: Any) -> Any:
        """Return the sum of the squares of the entries."""
        matrix = self.require_rank(value)
        return self.fold("+", self.binary("*")(matrix, matrix))

    def norm(self, value: Any, eps: Any = 0.0) -> Any:
        """Return the square root of the sum of squares plus `eps`."""
        return self.unary("sqrt")(self.binary("+")(self.norm_sqr(value), eps))

    def reduce_truths(self, name: str, value: Any) -> Any:
        """Return True if any or all entries are nonzero; `name` is "any" or "all"."""
        return np.bool_((any if name == "any" else all)(bool(one) for one in self.require_rank(value).entries))

    def trace(self, value: Any) -> Any:
        """Return the sum of the diagonal."""
        matrix = self.require_rank(value, 2)
        return reduce(self.binary("+"), [matrix[i, i] for i in range(min(matrix.shape))])

    def transpose(self, value: Any) -> Matrix:
        """Return a matrix with rows and columns exchanged."""
        matrix = self.require_rank(value, 2)
        rows, columns = matrix.shape
        entries = [matrix.entries[i * columns + j] for j in range(columns) for i in range(rows)]
        return Matrix((columns, rows), entries, self)

    def outer_product(self, left: Any, right: Any) -> Matrix:
        """Return the products of all pairs of entries."""
        one, other = self.require_rank(left), self.require_rank(right)
        multiply = self.binary("*")
        entries = [multiply(a, b) for a in one.entries for b in other.entries]
        return Matrix((*one.shape, *other.shape), entries, self)

    def matmul(self, left: Any, right: Any) -> Any:
        """Return the matrix product of two matrices, or of a matrix and a vector; for two vectors, the dot product."""
        one, other = self.require_rank(left), self.require_rank(right)
        if len(one.shape) == len(other.shape) == 1:
            return self.dot(one, other)
        if len(one.shape) == 1:
            # The engines compute a vector times a matrix as the transposed matrix times the vector.
            one, other = self.transpose(other), one
        if one.shape[1] != other.shape[0]:
            raise ValueError(f"cannot multiply matrices of the shapes {one.shape} and {other.shape}")
        multiply, add = self.binary("*"), self.binary("+")
        inner, width = one.shape[1], other.shape[1] if len(other.shape) == 2 else 1
        entries = [
            reduce(add, [multiply(one.entries[i * inner + k], other.entries[k * width + j]) for k in range(inner)])
            for i in range(one.shape[0])
            for j in range(width)
        ]
        return Matrix((one.shape[0], *other.shape[1:]), entries, self)

    # Constructors --------------------------------------------------------------------------------

    def typed_matrix(self, shape: tuple[int, ...], kind: str | None, values: Sequence[Any]) -> Matrix:
        """Build a matrix of a type: implements `vec3(1.0)`, `vec3(a, b, c)`, `vec4(v.xyz, 1.0)` and `mat2(...)`."""
        size = shape[0] if len(shape) == 1 else shape[0] * shape[1]
        if len(values) == 1:
            value = values[0]
            if isinstance(value, Matrix):
                # The engines keep the type of such a matrix.
                if value.shape != shape:
                    raise ValueError(f"cannot build a matrix of shape {shape} from a matrix of shape {value.shape}")
                return value.copy()
            if type(value) in KINDS or isinstance(value, int | float):
                return self.build_matrix([value] * size, shape, kind)
        entries: list[Any] = []
        for value in values:
            rows = self.rows_of(value)
            entries += flatten(value if rows is None else rows)
        return self.build_matrix(entries, shape, kind)


def _is_run_value(value: Any) -> bool:
    return type(value) in KINDS or isinstance(value, Matrix)
