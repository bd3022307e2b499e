"""`load_blender`: captures in Blender's format, with the additions of instant-ngp and nerfstudio."""

from __future__ import annotations

from pathlib import Path

from ..._untrusted import is_file
from ..._user_warnings import warn
from ._capture import Capture, build_capture
from ._colmap_files import PointRecord, convert_points, read_points_of_ply
from ._transforms import read_scene


def load_blender(path: str | Path) -> Capture:
    """Read the cameras and pictures of a transforms.json, in Blender's, instant-ngp's or nerfstudio's format.

    That is `{"camera_angle_x": radians, "frames": [{"file_path": ..., "transform_matrix": 4 x 4}, ...]}`, with
    `camera_angle_y`, `fl_x`, `fl_y`, `cx`, `cy`, `w`, `h` of the file or of a frame, and the lens: `camera_model` and
    `k1`, `k2`, `k3`, `k4`, `p1`, `p2`. Paths are relative to the file's folder; ".png", ".jpg" and ".jpeg" may be left
    out. A picture turned by its EXIF data counts as upright. Intrinsics are scaled to the size of the pictures.

    Args:
        path: the transforms.json file.

    Returns:
        The capture, in the file's order, with the points of `ply_file_path`, if the file names one. Pictures that are
        missing are left out, with a warning. Lenses are undistorted as by `load_colmap`.

    Raises:
        InputError: the file or a picture is broken, all pictures are missing, or a camera's model is not supported. The
            message names the file and the entry.
        ConfigError: a lens distorts, and OpenCV is not installed.

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
    frames, ply = read_scene(Path(path))
    listed: list[PointRecord] = []
    if ply is not None and is_file(ply):
        listed = read_points_of_ply(ply)
    elif ply is not None:
        warn(f"{path} names {ply} as its file of points, but there is no such file: the capture has no points")
    return build_capture(frames, *convert_points(listed))
