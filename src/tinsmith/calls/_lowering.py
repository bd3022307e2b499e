"""Lowers an op's kernels to IR, and finds what follows from it for calls: arrays that kernels fill, and block memory.

Block memory is memory that the threads of a block share. If blocks run in order, it is an array of the pass that no
signature names and no user sees. Its sizes follow from those of the call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import passes
from .._errors import KernelError, ShapeError, refusal
from ..analyses import find_filled
from ..compiling import Stage
from ..engines import MOST_ELEMENTS
from ..frontend.lowering import LoweredKernel
from ..ir import Names, NotCovered, nodes
from ..passes import evaluate
from ..spec import Anything, Fixed, Named, Numbers, Size, Sizing, Symbol
from ._key import CallKey
from ._signature import Signature


def lower_stages(key: CallKey) -> list[LoweredKernel]:
    """Lower the kernels of an op to IR, one for each launch, in order.

    Raises:
        NotCovered: a kernel uses what the front end does not know.
    """
    stages = key.signature.stages
    pairs = zip(stages, key.variants, strict=True)
    kernels = [stage.lower_variant(variant, key.templates) for stage, variant in pairs]
    return _separate_block_memory(key, [stage.first for stage in stages], kernels)


def _separate_block_memory(key: CallKey, stages: Sequence[Stage], kernels: list[LoweredKernel]) -> list[LoweredKernel]:
    """Rename block memory so that no two kernels use the same name for different memory.

    `stages` are the stages of the kernels; launches of one stage share its memory.
    """
    if not any(kernel.block_memory for kernel, _ in kernels):
        return kernels
    taken = {*key.signature.order, *key.signature.items}
    taken |= {name for kernel, _ in kernels for name in kernel.arrays if name not in kernel.block_memory}
    names, moved = Names(taken), dict[Stage, dict[str, str]]()
    for stage, (kernel, _) in zip(stages, kernels, strict=True):
        if stage not in moved:
            moved[stage] = {name: names.fresh(name) for name in kernel.block_memory}
    return [
        LoweredKernel(passes.rename_arrays(one, moved[stage]), fields)
        for stage, (one, fields) in zip(stages, kernels, strict=True)
    ]


@dataclass(frozen=True)
class KernelLaunches:
    """An op's kernels as IR, each once, and for each launch the index of its kernel."""

    kernels: Sequence[LoweredKernel]
    launches: Sequence[int]


def lower_launches(key: CallKey) -> KernelLaunches:
    """Lower each kernel of an op once, with the argument names of its first launch.

    Raises:
        NotCovered: a kernel uses what the front end does not know.
    """
    stages = key.signature.stages
    places = {stage: place for place, stage in enumerate(key.signature.firsts)}
    variants = {stage: variant for stage, variant in zip(stages, key.variants, strict=True) if stage is stage.first}
    kernels = [stage.lower_variant(variants[stage], key.templates) for stage in places]
    return KernelLaunches(_separate_block_memory(key, [*places], kernels), [places[stage.first] for stage in stages])


def require_lowered(key: CallKey) -> list[LoweredKernel]:
    """Lower the kernels of an op to IR, as `lower_stages` does, for callers that cannot go on without the IR.

    Raises:
        KernelError: a kernel uses what the front end does not know.
    """
    try:
        return lower_stages(key)
    except NotCovered as reason:
        raise KernelError(
            refusal(
                f"op `{key.signature.op}` uses a construct that tinsmith cannot analyze",
                [("construct", reason.construct), ("at", reason.place)],
                (
                    f"{reason.remedy}. Where the engine compiles the kernel, the op itself runs, with the engine's "
                    "own gradient or a `backward=`."
                ),
            )
        ) from None


# Filled arrays ---------------------------------------------------------------------------------------


def find_filled_arrays(key: CallKey) -> frozenset[str]:
    """Return the outputs and scratch that need no zeroing: the first kernel that uses one stores every element."""
    signature, filled = key.signature, set[str]()
    waiting = {name for name in signature.allocations if signature.starts_at_zero(name)}
    for stage, variant in zip(signature.stages, key.variants, strict=True):
        own = waiting.intersection(stage.arrays)
        waiting -= own
        # The kernels of networks are unrolled: their IR is long, and their `init` says what starts empty. If Python
        # runs a kernel, a debugger shows the memory, so it is zeroed.
        if not own or stage.is_simd or stage.engine.runs_source:
            continue
        try:
            kernel, _ = stage.lower_variant(variant.single, key.templates)
        except NotCovered:
            continue
        filled |= own & find_filled(kernel, lambda expr: find_length(signature, expr))
    return frozenset(filled)


def find_length(signature: Signature, expr: nodes.Expr) -> object:
    """Return a value that is equal for sizes and arguments that the spec says are equal; None if it says nothing.

    Arrays are taken without their batch.
    """
    match expr:
        case nodes.Size(array, axis):
            item = signature.kernel_items.get(array)
            dims = () if item is None or item.has_rest else item.dims
            dim = dims[axis] if axis < len(dims) else Anything()
            return expr if isinstance(dim, Anything) else dim.size if isinstance(dim, Fixed) else dim
        case nodes.Argument(name, _, ()) if name in signature.size_scalars:
            return Named(name)
    return None


# Memory of blocks ------------------------------------------------------------------------------------


def add_block_memory(sizing: Sizing, kernels: Sequence[LoweredKernel], op: str) -> Sizing:
    """Return a call's sizing with the block memory that its kernels need.

    Args:
        sizing: the sizing of the arrays that the signature names.
        kernels: the kernels of the op's launches, for one sample.
        op: the op's name, for messages.
    """
    arrays = {name: kernel.arrays[name] for kernel, _ in kernels for name in kernel.block_memory}
    if not arrays:
        return sizing
    ranks = {
        name: array.rank + len(array.element)
        for kernel, _ in kernels
        for name, array in kernel.arrays.items()
        if name not in arrays
    }

    def find_sizes(shapes: Mapping[str, Sequence[int]], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        # Formulas are about one sample, so a leading batch dimension is removed.
        known = {name: shape[len(shape) - ranks[name] :] for name, shape in shapes.items() if name in ranks}
        return _find_block_sizes(kernels, arrays, known, values, op)

    lead = () if sizing.batch is None else (sizing.batch,)
    return add_arrays(sizing, {name: (array.rank, array.element) for name, array in arrays.items()}, lead, find_sizes)


def add_arrays(
    sizing: Sizing,
    arrays: Mapping[str, tuple[int, tuple[int, ...]]],
    lead: tuple[Size, ...],
    find_sizes: Callable[[Mapping[str, Sequence[int]], Mapping[str, Any]], Sequence[tuple[int, ...]]],
) -> Sizing:
    """Return a sizing with further arrays, whose sizes are computed from those of the others.

    Args:
        sizing: the sizing of the others.
        arrays: for each further array the number of its dims that are computed, and the sizes of its last dims.
        lead: the sizes of their first dims: that of a batch, or nothing.
        find_sizes: computes the sizes of each, given the shapes of the others and the values that a call passes.
    """
    names = [name for name in sizing.shapes if name not in arrays]
    shapes, symbols = dict(sizing.shapes), sizing.symbols
    for name, (rank, element) in arrays.items():
        shapes[name] = (*lead, *(Symbol(symbols + axis) for axis in range(rank)), *element)
        symbols += rank

    def solve(given: Sequence[Sequence[int]], values: Mapping[str, Any]) -> Numbers | None:
        numbers = sizing.solve(given, values)
        if numbers is None:
            return None
        sizes = find_sizes({name: sizing.evaluate(name, numbers) for name in names}, values)
        # The last number is the number of elements of all arrays together.
        return (*numbers[: sizing.symbols], *itertools.chain(*sizes), numbers[-1] + sum(map(math.prod, sizes)))

    return replace(sizing, shapes=shapes, solve=solve, symbols=symbols)


def _find_block_sizes(
    kernels: Sequence[LoweredKernel],
    arrays: Mapping[str, nodes.Array],
    shapes: Mapping[str, Sequence[int]],
    scalars: Mapping[str, Any],
    op: str,
) -> list[tuple[int, ...]]:
    """Return the sizes of each block memory: the largest that a launch needs. Raise ShapeError if too large."""
    largest: dict[str, tuple[int, ...]] = {name: (0,) * array.rank for name, array in arrays.items()}
    for kernel, _ in kernels:
        for name, sizes in kernel.block_memory.items():
            needed = [evaluate(size, shapes, scalars) for size in sizes]
            largest[name] = tuple([max(pair) for pair in zip(largest[name], needed, strict=True)])
    for name, shape in largest.items():
        count = math.prod((*shape, *arrays[name].element))
        if count > MOST_ELEMENTS:
            words = f"op `{op}` would need {count} numbers for the memory of its blocks, more than engines can index"
            remedy = "Split the call: fewer parallel iterations in one call, or less memory for each block."
            raise ShapeError(refusal(words, [("at most", str(MOST_ELEMENTS))], remedy))
    return [*largest.values()]
