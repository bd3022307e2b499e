"""Lanes: a parallel loop whose inner loops end by data, in blocks of iterations that run side by side."""

from ._run import run_in_lanes

__all__ = ["run_in_lanes"]
