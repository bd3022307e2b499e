"""Filled arrays: outputs and scratch that kernels fill before they use them, so that nobody need clear their memory."""

from __future__ import annotations

from ..analyses import find_filled
from ..ir import NotCovered, nodes
from ..spec import Anything, Fixed, Named
from ._key import CallKey
from ._signature import Signature


def find_filled_arrays(key: CallKey) -> frozenset[str]:
    """Arrays that start at zero and need not: the first kernel that has them stores every element, for each sample."""
    signature, filled = key.signature, set[str]()
    waiting = {name for name in signature.outputs + signature.scratch if signature.starts_at_zero(name)}
    for stage, variant in zip(signature.stages, key.variants, strict=True):
        own = waiting.intersection(stage.arrays)
        waiting -= own
        # The kernels of networks are unrolled: their IR is long, and they say themselves what starts empty. Where
        # Python runs a kernel, a debugger shows the memory.
        if not own or stage.is_simd or stage.engine.runs_source:
            continue
        try:
            kernel, _ = stage.lower_variant(variant.single, key.templates)
        except NotCovered:
            continue
        filled |= own & find_filled(kernel, lambda expr: find_length(signature, expr))
    return frozenset(filled)


def find_length(signature: Signature, expr: nodes.Expr) -> object:
    """What is equal for sizes of arrays, without their batch, and arguments that the spec says are equal."""
    match expr:
        case nodes.Size(array, axis):
            item = signature.kernel_items.get(array)
            dims = () if item is None or item.has_rest else item.dims
            dim = dims[axis] if axis < len(dims) else Anything()
            return expr if isinstance(dim, Anything) else dim.size if isinstance(dim, Fixed) else dim
        case nodes.Argument(name, _, ()) if name in signature.size_scalars:
            return Named(name)
    return None
