"""Fit a radiance field to pictures of a scene: behind `tinsmith fit-scene`."""

from .._processes import read_launched_processes
from .._progress import progress_bar
from ..scenes import SceneReached, Viewer, viewer_page
from ._learner import SceneOptions
from ._run import fit_scene

__all__ = [
    "SceneOptions",
    "SceneReached",
    "Viewer",
    "fit_scene",
    "progress_bar",
    "read_launched_processes",
    "viewer_page",
]
