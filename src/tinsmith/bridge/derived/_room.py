"""Room: arrays of generated kernels whose length is a formula in a kernel's sizes and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ..._errors import ShapeError, refusal
from ...source.ir import nodes
from ...spec import Sizing, Symbol
from ...transforms.adjoint import evaluated
from .._signature import Signature

LARGEST = 2**31 - 1
"""Numbers of one array: engines count elements in 32 bits."""
Room: TypeAlias = Mapping[str, tuple[int, nodes.Expr]]
"""Arrays by name, each with the number of the kernel whose arguments its length depends on, and its length."""
Shapes: TypeAlias = Mapping[str, Sequence[int]]


def lengths(room: Room, signature: Signature, shapes: Shapes, scalars: Mapping[str, Any]) -> list[int]:
    """How long each array is in a call. Raises ShapeError where engines could not count its elements."""
    found = []
    for name, (number, length) in room.items():
        stage = signature.stages[number]
        pairs = ((one, stage.renamed.get(one, one)) for one in stage.first.parameters)
        found.append(evaluated(length, shapes, {one: scalars[called] for one, called in pairs if called in scalars}))
        if found[-1] > LARGEST:
            words = f"op `{signature.op}` would keep {found[-1]} numbers of its atomics, more than engines can count"
            remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
            raise ShapeError(refusal(words, [("array", name), ("largest", str(LARGEST))], remedy))
    return found


def with_room(
    found: Sizing,
    room: Room,
    signature: Signature,
    *,
    seen: Callable[[str, tuple[int, ...]], tuple[int, ...]] = lambda _, shape: shape,
    is_wide: bool = False,
) -> Sizing:
    """Sizes of all arrays, those of `room` too.

    Args:
        found: the sizes of the others.
        room: the arrays.
        signature: whose kernels they belong to.
        seen: from an array's name and shape to the shape that the kernels see.
        is_wide: whether each sample of a batch has its own.
    """
    names = [name for name in found.shapes if name not in room]
    lead = (found.batch,) if is_wide and found.batch is not None else ()
    shapes = dict(found.shapes)
    shapes |= {name: (*lead, Symbol(found.symbols + place)) for place, name in enumerate(room)}

    def solve(given: Sequence[Sequence[int]], values: Mapping[str, Any]) -> tuple[int, ...] | None:
        numbers = found.solve(given, values)
        if numbers is None:
            return None
        known = {name: seen(name, found.evaluate(name, numbers)) for name in names}
        more = lengths(room, signature, known, values)
        return (*numbers[: found.symbols], *more, numbers[-1] + sum(more))

    return Sizing(shapes, solve, found.batch, found.symbols + len(room)) if room else found
