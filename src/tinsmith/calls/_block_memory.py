"""Memory of blocks: sizes of the arrays that threads of a block share, if blocks are run in order.

No user sees this memory, and no signature names it. It is made for each pass; its sizes follow from those of a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._errors import ShapeError, refusal
from ..engines import MOST_ELEMENTS
from ..frontend.lowering import LoweredKernel
from ..ir import nodes
from ..passes import evaluate
from ..spec import Numbers, Sizing, Symbol


def add_block_memory(sizing: Sizing, kernels: Sequence[LoweredKernel], op: str) -> Sizing:
    """The sizing of a call, with the memory of blocks that its kernels need.

    Args:
        sizing: that of the arrays that the signature names.
        kernels: those of the op's launches, for one sample.
        op: its name, for messages.
    """
    arrays = {name: kernel.arrays[name] for kernel, _ in kernels for name in kernel.block_memory}
    if not arrays:
        return sizing
    lead = () if sizing.batch is None else (sizing.batch,)
    shapes, names = dict(sizing.shapes), [*sizing.shapes]
    places = {}
    for name, array in arrays.items():
        places[name] = sizing.symbols + sum(arrays[other].rank for other in places)
        own = (Symbol(places[name] + axis) for axis in range(array.rank))
        shapes[name] = (*lead, *own, *array.element)

    def solve(given: Sequence[Sequence[int]], values: Mapping[str, Any]) -> Numbers | None:
        numbers = sizing.solve(given, values)
        if numbers is None:
            return None
        wide = {name: sizing.evaluate(name, numbers) for name in names}
        # A batch dimension is in front of what has one; formulas speak of one sample.
        known = {name: shape[len(shape) - ranks[name] :] for name, shape in wide.items() if name in ranks}
        sizes = _sizes(kernels, arrays, known, values, op)
        more = [size for name in arrays for size in sizes[name]]
        return (*numbers[: sizing.symbols], *more, numbers[-1] + sum(map(math.prod, sizes.values())))

    ranks = {
        name: array.rank + len(array.element)
        for kernel, _ in kernels
        for name, array in kernel.arrays.items()
        if name not in arrays
    }
    return replace(
        sizing, shapes=shapes, solve=solve, symbols=sizing.symbols + sum(one.rank for one in arrays.values())
    )


def _sizes(
    kernels: Sequence[LoweredKernel],
    arrays: Mapping[str, nodes.Array],
    shapes: Mapping[str, Sequence[int]],
    scalars: Mapping[str, Any],
    op: str,
) -> dict[str, tuple[int, ...]]:
    """The sizes of the memory: the largest that a launch needs."""
    largest: dict[str, tuple[int, ...]] = {name: (0,) * array.rank for name, array in arrays.items()}
    for kernel, _ in kernels:
        for name, sizes in kernel.block_memory.items():
            needed = [evaluate(size, shapes, scalars) for size in sizes]
            largest[name] = tuple([max(pair) for pair in zip(largest[name], needed, strict=True)])
    for name, shape in largest.items():
        count = math.prod((*shape, *arrays[name].element))
        if count > MOST_ELEMENTS:
            words = f"op `{op}` would need {count} numbers of memory for its blocks, more than engines can index"
            remedy = "Split the call: fewer parallel iterations in one call, or less memory of a block."
            raise ShapeError(refusal(words, [("largest", str(MOST_ELEMENTS))], remedy))
    return largest
