"""Fit Gaussians to pictures of a scene: behind `tinsmith fit-splats`."""

from .._progress import progress_bar
from ..scenes import SceneReached, Viewer, viewer_page
from ._options import SplatOptions
from ._run import fit_splats

__all__ = ["SceneReached", "SplatOptions", "Viewer", "fit_splats", "progress_bar", "viewer_page"]
