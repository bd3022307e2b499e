"""Simulations that learn: behind `tinsmith simulate`."""

from .._loop import Outcome
from .._progress import progress_bar
from ._run import SimulateOptions, SimulationOutcome, simulate

__all__ = ["Outcome", "SimulateOptions", "SimulationOutcome", "progress_bar", "simulate"]
