"""Blocks of a parallel loop, run in order: a form of a kernel without barriers."""

from ._in_order import run_blocks_in_order
from ._spread import spread_blocks

__all__ = ["run_blocks_in_order", "spread_blocks"]
