"""Scenes that apps learn: views of a dataset or of the built-in scene; evaluation and viewer of a training."""

from ._backgrounds import BACKGROUNDS, require_background
from ._built_in_scene import estimate_own_scene_cost, own_scene
from ._checkpoints import SceneCheckpoints
from ._dataset import read_dataset, write_dataset
from ._evaluation import Evaluation, evaluate_model
from ._learning import History, SceneReached, SceneTraining, look
from ._orbit import Orbit
from ._pictures import FILES as PICTURE_FILES
from ._pictures import depth_frames, describe_scene, picture_writers, turntable
from ._solids import Box
from ._viewer import Viewer, viewer_page
from ._views import Dataset, Points, Views, dataset_of

__all__ = [
    "BACKGROUNDS",
    "Box",
    "Dataset",
    "Evaluation",
    "History",
    "Orbit",
    "PICTURE_FILES",
    "Points",
    "SceneCheckpoints",
    "SceneReached",
    "SceneTraining",
    "Viewer",
    "Views",
    "dataset_of",
    "depth_frames",
    "describe_scene",
    "estimate_own_scene_cost",
    "evaluate_model",
    "look",
    "own_scene",
    "picture_writers",
    "read_dataset",
    "require_background",
    "turntable",
    "viewer_page",
    "write_dataset",
]
