"""Operations on values of any kind: on numbers by the rules of `_numbers`, on vectors and matrices entry by entry."""

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
        arithmetic: the rules for single numbers.
        rows_of: the numbers of an engine's vector or matrix that Python holds; None for anything else.
        method_of: the engine's function behind a method of vectors and matrices.
    """

    call: Callable[..., Any]
    """Calls a method of vectors and matrices, given the vector or matrix and the method's arguments."""

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
        """Return a value as a number or a matrix: lists and the engine's own matrices become one."""
        if type(value) in KINDS or isinstance(value, Matrix | bool | int | float):
            return value
        rows = self.rows_of(value)
        if rows is None and isinstance(value, np.ndarray):
            rows = value.tolist()
        if rows is None and isinstance(value, list | tuple):
            rows = list(value)
        if rows is None:
            raise TypeError(f"a {type(value).__name__} where a number, vector or matrix is wanted")
        return self.matrix(rows)

    def matrix(self, rows: Any, kind: str | None = None) -> Matrix:
        """Return what `Vector([...])` and `Matrix([[...]])` make of their entries."""
        rows = rows.rows if isinstance(rows, Matrix) else rows
        rows = [row.rows if isinstance(row, Matrix) else row for row in rows]
        is_nested = bool(rows) and isinstance(rows[0], list | tuple)
        shape = (len(rows), len(rows[0])) if is_nested else (len(rows),)
        return self.build_matrix([entry for row in rows for entry in row] if is_nested else rows, shape, kind)

    def build_matrix(self, entries: Sequence[Any], shape: tuple[int, ...], kind: str | None = None) -> Matrix:
        """Return a matrix of one type: the given one, or the common type of its entries."""
        size = shape[0] if len(shape) == 1 else shape[0] * shape[1]
        if size != len(entries) or not entries:
            raise ValueError(f"{len(entries)} numbers for a matrix of shape {shape}")
        kinds = [self.defaults.ip if isinstance(one, bool) else self.arithmetic.kind_of(one) for one in entries]
        cast = self.casts[kind or reduce(promote, kinds)]
        return Matrix(shape, [cast(one) for one in entries], self)

    def each(self, change: Callable[..., Any], *values: Any) -> Any:
        """Do an operation entry by entry; numbers go with every entry."""
        shapes = {one.shape for one in values if isinstance(one, Matrix)}
        if not shapes:
            return change(*values)
        if len(shapes) > 1:
            raise ValueError(f"an operation on shapes {' and '.join(map(str, sorted(shapes)))}")
        columns = [one.entries if isinstance(one, Matrix) else itertools.repeat(one) for one in values]
        return Matrix(shapes.pop(), [change(*row) for row in zip(*columns, strict=False)], self)

    # Operations --------------------------------------------------------------------------------

    def binary(self, name: str) -> Rule:
        """Return the function of a binary operation."""
        rules, build = self.arithmetic.rules_for(name), self.arithmetic.rule_for

        def of_any(left: Any, right: Any) -> Any:
            if name in PYTHON and not (_is_of_run(left) or _is_of_run(right)):
                # Lists, texts, dtypes and None are known before the run.
                return PYTHON[name](left, right)
            left, right = self.tensor(left), self.tensor(right)
            if not isinstance(left, Matrix) and not isinstance(right, Matrix):
                return build(name, type(left), type(right))(left, right)
            if name == "atan2":
                # Of vectors both engines make f32, even of f64.
                left, right = self.cast(left, "f32"), self.cast(right, "f32")
            return self.each(lambda one, other: build(name, type(one), type(other))(one, other), left, right)

        def operate(left: Any, right: Any) -> Any:
            rule = rules.get((type(left), type(right)))
            return of_any(left, right) if rule is None else rule(left, right)

        return operate

    def unary(self, name: str) -> Rule:
        """Return the function of an operation on one value."""
        one = self.arithmetic.unary

        def operate(value: Any) -> Any:
            if type(value) in KINDS:
                return one(name, value)
            return self.each(lambda entry: one(name, entry), self.tensor(value))

        return operate

    def cast(self, value: Any, kind: str) -> Any:
        """Return a value converted to a type, entry by entry."""
        return self.each(self.casts[kind], self.tensor(value))

    def select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        """Return one of two values, entry by entry, in their common type."""
        return self.each(
            lambda test, one, other: self.common(one if test else other, other if test else one),
            *(self.tensor(value) for value in (condition, then, otherwise)),
        )

    def common(self, value: Any, other: Any) -> Any:
        """Return a value in the common type of it and another one, which is not used otherwise."""
        if isinstance(value, Matrix) or isinstance(other, Matrix):
            return self.each(self.common, self.tensor(value), self.tensor(other))
        kinds = self.arithmetic.kind_of(value), self.arithmetic.kind_of(other)
        return self.casts[promote(*kinds)](value)

    # Functions of vectors and matrices -----------------------------------------------------------

    def of_rank(self, value: Any, rank: int = 0) -> Matrix:
        """Return a value as a matrix of so many dims (0: any)."""
        matrix = self.tensor(value)
        if not isinstance(matrix, Matrix) or (rank and len(matrix.shape) != rank):
            raise TypeError("a number where a vector or matrix is wanted, or one of the wrong rank")
        return matrix

    def fold(self, name: str, value: Any) -> Any:
        """Combine the entries, from the first to the last."""
        return reduce(self.binary(name), self.of_rank(value).entries)

    def dot(self, left: Any, right: Any) -> Any:
        """Return the sum of the products of two vectors' entries."""
        return self.fold("+", self.binary("*")(self.of_rank(left, 1), self.of_rank(right, 1)))

    def norm_sqr(self, value: Any) -> Any:
        """Return the sum of the squares of the entries."""
        matrix = self.of_rank(value)
        return self.fold("+", self.binary("*")(matrix, matrix))

    def norm(self, value: Any, eps: Any = 0.0) -> Any:
        """Return the root of the sum of the squares, with `eps` added below it."""
        return self.unary("sqrt")(self.binary("+")(self.norm_sqr(value), eps))

    def truths(self, name: str, value: Any) -> Any:
        """Return whether any or all entries are not zero."""
        return np.bool_((any if name == "any" else all)(bool(one) for one in self.of_rank(value).entries))

    def trace(self, value: Any) -> Any:
        """Return the sum of the diagonal."""
        matrix = self.of_rank(value, 2)
        return reduce(self.binary("+"), [matrix[i, i] for i in range(min(matrix.shape))])

    def transpose(self, value: Any) -> Matrix:
        """Return a matrix with rows and columns exchanged."""
        matrix = self.of_rank(value, 2)
        rows, columns = matrix.shape
        entries = [matrix.entries[i * columns + j] for j in range(columns) for i in range(rows)]
        return Matrix((columns, rows), entries, self)

    def outer_product(self, left: Any, right: Any) -> Matrix:
        """Return the products of all pairs of entries."""
        one, other = self.of_rank(left), self.of_rank(right)
        multiply = self.binary("*")
        entries = [multiply(a, b) for a in one.entries for b in other.entries]
        return Matrix((*one.shape, *other.shape), entries, self)

    def matmul(self, left: Any, right: Any) -> Any:
        """Return the product of two matrices, or of a matrix and a vector; of two vectors their dot product."""
        one, other = self.of_rank(left), self.of_rank(right)
        if len(one.shape) == len(other.shape) == 1:
            return self.dot(one, other)
        if len(one.shape) == 1:
            # The engines turn the product round.
            one, other = self.transpose(other), one
        if one.shape[1] != other.shape[0]:
            raise ValueError(f"a product of shapes {one.shape} and {other.shape}")
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
        """Return what `vec3(1.0)`, `vec3(a, b, c)`, `vec4(v.xyz, 1.0)` and `mat2(...)` make of their arguments."""
        size = shape[0] if len(shape) == 1 else shape[0] * shape[1]
        if len(values) == 1:
            value = values[0]
            if isinstance(value, Matrix):
                # The engines keep the type of such a matrix.
                if value.shape != shape:
                    raise ValueError(f"a matrix of shape {shape} of one of shape {value.shape}")
                return value.copy()
            if type(value) in KINDS or isinstance(value, int | float):
                return self.build_matrix([value] * size, shape, kind)
        entries: list[Any] = []
        for value in values:
            rows = self.rows_of(value)
            entries += flatten(value if rows is None else rows)
        return self.build_matrix(entries, shape, kind)


def _is_of_run(value: Any) -> bool:
    return type(value) in KINDS or isinstance(value, Matrix)
