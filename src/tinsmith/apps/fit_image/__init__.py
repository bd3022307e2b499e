"""Fit a photograph with 2-D Gaussians: behind `tinsmith fit-image`."""

from .._outcome import Reached
from .._progress import progress_bar
from ._run import FitOptions, fit_image

__all__ = ["FitOptions", "Reached", "fit_image", "progress_bar"]
