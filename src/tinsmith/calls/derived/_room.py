"""Room: arrays of generated kernels whose length is a formula in a kernel's sizes and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ..._errors import ShapeError, refusal
from ...engines import MOST_ELEMENTS
from ...ir import nodes
from ...passes import evaluate
from ...spec import Sizing
from .._core import Call
from .._lowering import add_arrays
from .._signature import Signature

Room: TypeAlias = Mapping[str, tuple[int, nodes.Expr]]
"""Arrays by name, each with its length as a formula, and the index of the kernel whose arguments the formula uses."""
Shapes: TypeAlias = Mapping[str, Sequence[int]]


def compute_lengths(room: Room, signature: Signature, shapes: Shapes, scalars: Mapping[str, Any]) -> list[int]:
    """Compute the length of each array in a call. Raise ShapeError if one has more elements than engines can index."""
    counts = []
    for name, (number, length) in room.items():
        stage = signature.stages[number]
        pairs = ((one, stage.scalar_names.get(one, one)) for one in stage.first.parameters)
        counts.append(evaluate(length, shapes, {one: scalars[called] for one, called in pairs if called in scalars}))
        if counts[-1] > MOST_ELEMENTS:
            words = f"op `{signature.op}` would save {counts[-1]} results of its atomics, more than engines can index"
            remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
            raise ShapeError(refusal(words, [("array", name), ("at most", str(MOST_ELEMENTS))], remedy))
    return counts


def add_room(sizing: Sizing, room: Room, call: Call, *, is_looped: bool) -> Sizing:
    """Return the sizing of all arrays, including those of `room`.

    Args:
        sizing: the sizing of the other arrays.
        room: the arrays whose lengths are formulas.
        call: a call of the kind that the sizing is for.
        is_looped: whether the samples of a batch run one by one: kernels then see one sample, which has its own memory.
    """
    if not room:
        return sizing
    signature = call.core.signature
    lead = (sizing.batch,) if is_looped and sizing.batch is not None else ()
    parted = {name for name in sizing.shapes if lead and (name in call.batched or name not in signature.arrays)}

    def find_sizes(shapes: Shapes, values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        known = {name: shape[name in parted :] for name, shape in shapes.items()}
        return [(length,) for length in compute_lengths(room, signature, known, values)]

    return add_arrays(sizing, dict.fromkeys(room, (1, ())), lead, find_sizes)
