"""Fit a photograph with 2-D Gaussians: behind `tinsmith fit-image`."""

from ._options import FitOptions
from ._progress import progress_bar
from ._run import Fit, fit_image

__all__ = ["Fit", "FitOptions", "fit_image", "progress_bar"]
