"""Scenes that apps learn: views of a dataset in a folder or of the scene of our own, and where a camera goes around."""

from ._dataset import read_dataset, write_dataset
from ._orbit import Orbit
from ._own_scene import own_scene
from ._solids import Box
from ._views import Dataset, Points, Views, dataset_of

__all__ = [
    "Box",
    "Dataset",
    "Orbit",
    "Points",
    "Views",
    "dataset_of",
    "own_scene",
    "read_dataset",
    "write_dataset",
]
