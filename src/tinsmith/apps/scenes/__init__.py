"""Scenes for apps to learn: the views of a dataset or of the built-in scene; evaluation and viewer of a training."""

from ._learner import Evaluation, SceneLearner, SceneReached
from ._orbit import Orbit
from ._pictures import FILES as PICTURE_FILES
from ._pictures import depth_film, describe_scene, make_scene_report, picture_writers, turntable
from ._run import identify_run, load_scene, run_scene
from ._solids import Box
from ._viewer import Viewer, viewer_page
from ._views import Dataset, Views, require_background

__all__ = [
    "Box",
    "Dataset",
    "Evaluation",
    "Orbit",
    "PICTURE_FILES",
    "SceneLearner",
    "SceneReached",
    "Viewer",
    "Views",
    "depth_film",
    "describe_scene",
    "identify_run",
    "load_scene",
    "make_scene_report",
    "picture_writers",
    "require_background",
    "run_scene",
    "turntable",
    "viewer_page",
]
