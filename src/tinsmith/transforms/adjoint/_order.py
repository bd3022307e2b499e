"""Whether the reverse of a loop has to run from its last iteration to its first."""

from __future__ import annotations

from collections.abc import Collection

from ...source.ir import nodes
from ._ssa import Loop, stores_in


def overwrites(loop: Loop, arrays: Collection[str], once: Collection[int]) -> bool:
    """Whether an iteration may store where an earlier one did: the later one is to take the adjoint first.

    Args:
        loop: the loop.
        arrays: those that have an adjoint.
        once: numbers of stores to elements that nothing else touches.
    """
    stores = (one for one in stores_in(loop.body) if isinstance(one, nodes.Store))
    return any(one.array in arrays and one.number not in once for one in stores)
