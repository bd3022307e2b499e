"""Ops that were generated from an op: its tangent, and the one that follows from a seed."""

from ._higher import SecondOrder, pushed_forward
from ._seeds import SeededCore, has_draws

__all__ = ["SecondOrder", "SeededCore", "has_draws", "pushed_forward"]
