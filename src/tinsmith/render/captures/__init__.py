"""Captures: pictures of a scene with their cameras, read from Blender's and COLMAP's files.

`load_blender` and `load_colmap` return a `Capture` of tensors and paths. `read_transforms` and `read_colmap` return its
frames, each with its entry in the file, for callers that report errors about single pictures.
"""

from __future__ import annotations

from ._capture import Capture, Observations, convert_to_viewmat
from ._colmap import Reconstruction, contains_colmap, load_colmap, read_colmap
from ._frames import Entry, Frame
from ._transforms import load_blender, read_transforms

__all__ = [
    "Capture",
    "Entry",
    "Frame",
    "Observations",
    "Reconstruction",
    "contains_colmap",
    "convert_to_viewmat",
    "load_blender",
    "load_colmap",
    "read_colmap",
    "read_transforms",
]
