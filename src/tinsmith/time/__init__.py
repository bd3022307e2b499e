"""Time: simulations, step after step, as one differentiable operation."""

from ._scan import scan

__all__ = ["scan"]
