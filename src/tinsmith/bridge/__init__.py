"""The bridge: from a spec and a kernel to an ordinary, differentiable torch operation."""

from ._op import Op, chain, op
from ._pickling import Reference, reference_to
from ._stage import Links

__all__ = ["Links", "Op", "Reference", "chain", "op", "reference_to"]
