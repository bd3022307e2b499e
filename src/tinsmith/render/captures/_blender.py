"""Blender's form of a capture, and what instant-ngp and nerfstudio add to it."""

from __future__ import annotations

from pathlib import Path

import torch

from ._capture import Capture, capture_of
from ._transforms import read_transforms


def load_blender(path: str | Path) -> Capture:
    """Read the cameras and pictures of a transforms.json, in Blender's, instant-ngp's or nerfstudio's form.

    That is `{"camera_angle_x": radians, "frames": [{"file_path": ..., "transform_matrix": 4 x 4}, ...]}`, with
    `camera_angle_y`, `fl_x`, `fl_y`, `cx`, `cy`, `w`, `h` of the file or of a frame. Paths are relative to the file's
    folder; ".png", ".jpg" and ".jpeg" may be left out. A picture turned by its EXIF data counts as upright.

    Args:
        path: the file.

    Returns:
        The capture, in the file's order, without points.

    Raises:
        InputError: the file or a picture is missing or broken, or a lens distorts; names the file and the entry.

    Example:
        >>> import json, PIL.Image
        >>> PIL.Image.new("RGB", (64, 48)).save("view.png")
        >>> frame = {"file_path": "view", "transform_matrix": torch.eye(4).tolist()}
        >>> with open("transforms.json", "w") as file:
        ...     json.dump({"fl_x": 50.0, "frames": [frame]}, file)
        >>> capture = ts.render.load_blender("transforms.json")
        >>> capture.Ks[0]
        tensor([[50.,  0., 32.],
                [ 0., 50., 24.],
                [ 0.,  0.,  1.]], dtype=torch.float64)
    """
    return capture_of(read_transforms(Path(path)), torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, 3).byte())
