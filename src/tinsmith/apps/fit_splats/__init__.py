"""Fit Gaussians to pictures of a scene: behind `tinsmith fit-splats`."""

from .._progress import progress_bar
from ..scenes import SceneReached
from ._options import SplatOptions
from ._run import fit_splats

__all__ = ["SceneReached", "SplatOptions", "fit_splats", "progress_bar"]
