"""Ops that were generated from an op: its tangent, the one that follows from a seed, those that keep records."""

from ._block_core import BlockedCore
from ._higher import SecondOrder, pushed_forward
from ._records import RecordedCore, recorded_at, recorded_of
from ._seeds import SeededCore, has_draws

__all__ = [
    "BlockedCore",
    "RecordedCore",
    "SecondOrder",
    "SeededCore",
    "has_draws",
    "pushed_forward",
    "recorded_at",
    "recorded_of",
]
