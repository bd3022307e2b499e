"""The tangent pass: forward mode, from kernel to kernel."""

from ._kernel import Tangent, tangent

__all__ = ["Tangent", "tangent"]
