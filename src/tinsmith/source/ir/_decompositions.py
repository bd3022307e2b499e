"""Decompositions of square matrices: the engines' functions that give several matrices at once.

Their values are the engine's own: order, signs and determinants are as it has them. They are kept whole, because what
the engines do inside (an instruction of the compiler's, iterations that stop at a threshold) has no derivative where
the matrix is diagonal, or none at all; that of the whole is a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...ir import nodes
from ._constructors import dtype
from ._lowering import Lowering
from ._refusals import Misfit
from ._values import Matrix

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One matrix or vector that a decomposition gives.

    Attributes:
        name: what formulas call it.
        shape: as the IR has it.
        is_diagonal: whether the engine gives it as a matrix of which the IR has the diagonal.
    """

    name: str
    shape: Shape
    is_diagonal: bool = False

    @property
    def entries(self) -> list[Shape]:
        """The indices of the engine's entries that the IR has, in its order."""
        indices = Matrix(self.shape, ()).indices
        return [index * 2 for index in indices] if self.is_diagonal else indices


_PARTS: dict[str, Callable[[int], tuple[Part, ...]]] = {
    "svd": lambda n: (Part("u", (n, n)), Part("s", (n,), is_diagonal=True), Part("v", (n, n))),
    "polar_decompose": lambda n: (Part("r", (n, n)), Part("p", (n, n))),
    "sym_eig": lambda n: (Part("w", (n,)), Part("q", (n, n))),
    "make_spd": lambda n: (Part("m", (n, n)),),
}
"""By the engines' name: A = U S V^T, A = R P, A = Q W Q^T of a symmetric A, and M = Q max(W, 0) Q^T, Quadrants' own."""


def parts_of(one: nodes.Decompose) -> tuple[Part, ...]:
    """What a decomposition gives, in order."""
    return _PARTS[one.function](side_of(one))


def side_of(one: nodes.Decompose) -> int:
    """The number of rows of the matrix that is decomposed."""
    return round(len(one.matrix) ** 0.5)


def _build_lowering(function: str) -> Callable[..., Matrix | tuple[Matrix, ...]]:
    def lower_decomposition(low: Lowering, A: Any, dt: Any = None) -> Matrix | tuple[Matrix, ...]:
        kind = low.ops.defaults.fp if dt is None else dtype(low, dt)
        if kind not in ("f32", "f64"):
            raise Misfit(f"`{function}` in {kind}")
        matrix = low.ops.tensor(A)
        shape = matrix.shape if isinstance(matrix, Matrix) else ()
        largest = low.language.largest_decomposed(function)
        if not isinstance(matrix, Matrix) or shape not in [(side, side) for side in range(2, largest + 1)]:
            raise Misfit(f"`{function}` of a matrix of shape {shape}: {low.engine.name} takes 2 to {largest} square")
        first, *others = _split(low, function, matrix, kind)
        return (first, *others) if others else first

    return lower_decomposition


def _split(low: Lowering, function: str, matrix: Matrix, kind: str) -> tuple[Matrix, ...]:
    side = matrix.shape[0]
    parts = _PARTS[function](side)
    locals_ = [[low.state.local(part.name, kind) for _ in part.entries] for part in parts]
    names = tuple(local.name for group in locals_ for local in group)
    is_descending = function == "sym_eig" and low.language.sorts_eigenvalues_down(side)
    low.state.emit(nodes.Decompose(function, matrix.entries, names, kind, is_descending, low.state.line))
    return tuple(_whole(part, group, kind) for part, group in zip(parts, locals_, strict=True))


def _whole(part: Part, entries: list[nodes.Local], kind: str) -> Matrix:
    """A part as the engine gives it."""
    if not part.is_diagonal:
        return Matrix(part.shape, tuple(entries))
    zero, side = nodes.Const(0.0, kind), part.shape[0]
    return Matrix((side, side), tuple(entries[i] if i == j else zero for i in range(side) for j in range(side)))


LOWERED = {f"_funcs.{function}": _build_lowering(function) for function in _PARTS}
"""What lowers a call, by what the engines call the function inside their package."""
