"""Calls of the engines' decompositions of square matrices, lowered to one statement each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import PARTS, Misfit, Part, Type, nodes
from ._constructors import dtype
from ._lowering import Lowering
from ._values import Matrix


def _build_lowering(function: str) -> Callable[..., Matrix | tuple[Matrix, ...]]:
    def lower_decomposition(low: Lowering, A: Any, dt: Any = None) -> Matrix | tuple[Matrix, ...]:
        kind = low.ops.defaults.fp if dt is None else dtype(low, dt)
        if kind is None or kind not in (Type.F32, Type.F64):
            raise Misfit(f"`{function}` in {kind}")
        matrix = low.ops.tensor(A)
        shape = matrix.shape if isinstance(matrix, Matrix) else ()
        largest = low.language.largest_decomposed(function)
        if not isinstance(matrix, Matrix) or shape not in [(side, side) for side in range(2, largest + 1)]:
            raise Misfit(f"`{function}` of a matrix of shape {shape}: {low.engine.name} takes 2 to {largest} square")
        first, *others = _split(low, function, matrix, kind)
        return (first, *others) if others else first

    return lower_decomposition


def _split(low: Lowering, function: str, matrix: Matrix, kind: Type) -> tuple[Matrix, ...]:
    side = matrix.shape[0]
    parts = PARTS[function](side)
    locals_ = [[low.state.local(part.name, kind) for _ in part.entries] for part in parts]
    names = tuple(local.name for group in locals_ for local in group)
    is_descending = function == "sym_eig" and low.language.sorts_eigenvalues_down(side)
    low.state.emit(nodes.Decompose(function, matrix.entries, names, kind, is_descending, low.state.line))
    return tuple(_whole(part, group, kind) for part, group in zip(parts, locals_, strict=True))


def _whole(part: Part, entries: list[nodes.Local], kind: Type) -> Matrix:
    """A part as the engine gives it."""
    if not part.is_diagonal:
        return Matrix(part.shape, tuple(entries))
    zero, side = nodes.Const(0.0, kind), part.shape[0]
    return Matrix((side, side), tuple(entries[i] if i == j else zero for i in range(side) for j in range(side)))


LOWERED = {f"_funcs.{function}": _build_lowering(function) for function in PARTS}
"""What lowers a call, by what the engines call the function inside their package."""
