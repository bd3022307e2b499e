"""Lanes: a parallel loop whose inner loops end by data, in blocks of iterations that run side by side."""

from ._loops import find_loops_ended_by_data
from ._run import run_in_lanes

__all__ = ["find_loops_ended_by_data", "run_in_lanes"]
