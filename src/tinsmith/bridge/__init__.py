"""The bridge: from a spec and a kernel to an ordinary, differentiable torch operation."""

from ._op import Op, chain, op
from ._spec import Spec

__all__ = ["Op", "Spec", "chain", "op"]
