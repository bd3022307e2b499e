"""Decompositions of square matrices: the engines' functions that return several matrices at once.

Their values are the engine's own: order, signs and determinants are as it has them. They are kept whole, because what
the engines do inside (an instruction of the compiler's, iterations that stop at a threshold) has no derivative where
the matrix is diagonal, or none at all; that of the whole is a formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from . import _nodes as nodes

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One matrix or vector of a decomposition.

    Attributes:
        name: what formulas call it.
        shape: as the IR has it.
        is_diagonal: whether the engine returns a diagonal matrix, whose diagonal alone the IR has.
    """

    name: str
    shape: Shape
    is_diagonal: bool = False

    @property
    def entries(self) -> list[Shape]:
        """The indices of the engine's entries that the IR has, in its order."""
        indices = [*product(*map(range, self.shape))]
        # Entry `(k,)` of the IR's diagonal is entry `(k, k)` of the engine's matrix.
        return [index * 2 for index in indices] if self.is_diagonal else indices


PARTS: dict[str, Callable[[int], tuple[Part, ...]]] = {
    "svd": lambda n: (Part("u", (n, n)), Part("s", (n,), is_diagonal=True), Part("v", (n, n))),
    "polar_decompose": lambda n: (Part("r", (n, n)), Part("p", (n, n))),
    "sym_eig": lambda n: (Part("w", (n,)), Part("q", (n, n))),
    "make_spd": lambda n: (Part("m", (n, n)),),
}
"""By the engines' name: A = U S V^T, A = R P, A = Q W Q^T of a symmetric A, and M = Q max(W, 0) Q^T, Quadrants' own."""


def parts_of(one: nodes.Decompose) -> tuple[Part, ...]:
    """Return the parts that a decomposition computes, in order."""
    return PARTS[one.function](side_of(one))


def side_of(one: nodes.Decompose) -> int:
    """Return the number of rows of the matrix that is decomposed."""
    return round(len(one.matrix) ** 0.5)
