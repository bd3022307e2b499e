"""Ops generated from an op: its tangent, the form with a seed, and those that keep records."""

from ._block_core import BlockedCore
from ._higher import SecondOrder, push_forward
from ._records import RecordedCore, find_recorded, find_recorded_at
from ._seeds import SeededCore, has_draws
from ._tangents import TangentCore

__all__ = [
    "BlockedCore",
    "RecordedCore",
    "SecondOrder",
    "SeededCore",
    "TangentCore",
    "find_recorded",
    "find_recorded_at",
    "has_draws",
    "push_forward",
]
