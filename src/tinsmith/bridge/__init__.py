"""The bridge: from a spec and a kernel to an ordinary, differentiable torch operation."""

from ._op import Op, chain, op

__all__ = ["Op", "chain", "op"]
