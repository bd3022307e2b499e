"""Simulations that learn: behind `tinsmith simulate`."""

from .._outcome import Outcome
from .._progress import progress_bar
from ._live import live_page
from ._run import SimulateOptions, simulate
from ._simulation import SimulationOutcome

__all__ = ["Outcome", "SimulateOptions", "SimulationOutcome", "live_page", "progress_bar", "simulate"]
