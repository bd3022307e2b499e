"""Sums, products and transposes of vectors and matrices, as one expression for each entry.

    v.norm() + v.dot(v)     ->     norm(v_0 * v_0 + v_1 * v_1) + (v_0 * v_0 + v_1 * v_1)

The engines' own functions compute the same in the same order, one local after the other. Their products of matrices
begin with an entry times zero, to get the type; that is left out, which makes a difference only if the entry is
infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from ...ir import Misfit, Operator, Type, nodes
from ._lowering import Lowering
from ._values import Matrix, Scalar


def _build_fold(operator: Operator) -> Callable[[Lowering, Any], Scalar]:
    def fold(low: Lowering, mat: Any) -> Scalar:
        return reduce(lambda one, other: low.ops.binary(operator, one, other), _matrix(low, mat).entries)

    return fold


def _truth(operator: Operator) -> Callable[[Lowering, Any], Scalar]:
    def fold(low: Lowering, mat: Any) -> Scalar:
        tests = low.ops.binary(Operator.NE, _matrix(low, mat), 0).entries
        return reduce(lambda one, other: nodes.Binary(operator, one, other, Type.U1), tests)

    return fold


def _matrix(low: Lowering, value: Any, rank: int = 0) -> Matrix:
    tensor = low.ops.tensor(value)
    if not isinstance(tensor, Matrix) or (rank and len(tensor.shape) != rank):
        raise Misfit("an operand that must be a vector or matrix, but is a number or has the wrong rank")
    return tensor


def _share_entries(low: Lowering, value: Any) -> Matrix:
    """Return a matrix whose entries may be used more than once."""
    matrix = _matrix(low, value)
    return Matrix(matrix.shape, tuple(low.state.share(entry) for entry in matrix.entries))


def _norm_sqr(low: Lowering, mat: Any) -> Scalar:
    matrix = _share_entries(low, mat)
    return _build_fold(Operator.ADD)(low, low.ops.binary(Operator.MUL, matrix, matrix))


def _norm(low: Lowering, mat: Any, eps: Any = 0.0) -> Scalar:
    """Lower a length. Without `eps` it has an operator of its own, whose derivative at 0 is 0 and not infinite."""
    square = low.ops.binary(Operator.ADD, _norm_sqr(low, mat), eps)
    if low.ops.is_run_time(eps) or eps:
        return low.ops.unary(Operator.SQRT, square)
    # The sum without its `+ 0.0`, which has served to make integers floats.
    return low.ops.unary(Operator.NORM, low.ops.cast(square.left, square.type))


def _dot(low: Lowering, vec_x: Any, vec_y: Any) -> Scalar:
    return _build_fold(Operator.ADD)(low, low.ops.binary(Operator.MUL, _matrix(low, vec_x, 1), _matrix(low, vec_y, 1)))


def _trace(low: Lowering, mat: Any) -> Scalar:
    matrix = _matrix(low, mat, 2)
    diagonal = tuple(matrix[i, i] for i in range(min(matrix.shape)))
    return _build_fold(Operator.ADD)(low, Matrix((len(diagonal),), diagonal))


def _transpose(low: Lowering, mat: Any) -> Matrix:
    matrix = _matrix(low, mat, 2)
    rows, columns = matrix.shape
    return Matrix((columns, rows), tuple(matrix[i, j] for j in range(columns) for i in range(rows)))


def _outer_product(low: Lowering, vec_x: Any, vec_y: Any) -> Matrix:
    left, right = _share_entries(low, _matrix(low, vec_x, 1)), _share_entries(low, _matrix(low, vec_y, 1))
    entries = tuple(low.ops.binary(Operator.MUL, one, other) for one in left.entries for other in right.entries)
    return Matrix((*left.shape, *right.shape), entries)


def _matmul(low: Lowering, mat_x: Any, mat_y: Any) -> Any:
    left, right = _share_entries(low, mat_x), _share_entries(low, mat_y)
    if len(left.shape) == len(right.shape) == 1:
        return _dot(low, left, right)
    shapes = f"{left.shape} and {right.shape}"
    # As the engines do: `v @ m` is `transpose(m) @ v`, in the same order of additions.
    if len(left.shape) == 1:
        left, right = _transpose(low, right), left
    if left.shape[1] != right.shape[0]:
        raise Misfit(f"a product of matrices of the shapes {shapes}")
    columns: list[tuple[int, ...]] = [(j,) for j in range(right.shape[1])] if len(right.shape) == 2 else [()]

    def entry(i: int, column: tuple[int, ...]) -> Scalar:
        terms = [low.ops.binary(Operator.MUL, left[i, k], right[(k, *column)]) for k in range(left.shape[1])]
        return reduce(lambda one, other: low.ops.binary(Operator.ADD, one, other), terms)

    entries = tuple(entry(i, column) for i in range(left.shape[0]) for column in columns)
    return Matrix((left.shape[0], *right.shape[1:]), entries)


def check_square(low: Lowering, name: str, mat: Any) -> None:
    """Raise Misfit if the engines refuse a determinant or inverse: it is not square, or larger than 4 x 4."""
    shape = _matrix(low, mat, 2).shape
    if shape[0] != shape[1] or shape[0] > 4:
        raise Misfit(f"`{name}` of a matrix of shape {shape}")


SQUARE = ("determinant", "inverse")
OPERATIONS: dict[str, Callable[..., Any]] = {
    "sum": _build_fold(Operator.ADD),
    "max": _build_fold(Operator.MAX),
    "min": _build_fold(Operator.MIN),
    "any": _truth(Operator.OR),
    "all": _truth(Operator.AND),
    "norm": _norm,
    "norm_sqr": _norm_sqr,
    "dot": _dot,
    "trace": _trace,
    "transpose": _transpose,
    "outer_product": _outer_product,
    "matmul": _matmul,
}
"""Functions that lower matrix operations, by the engines' names for them."""
