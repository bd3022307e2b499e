"""`load_blender`: captures described by a transforms.json, which is checked entry by entry.

The format is Blender's (`camera_angle_x`, `frames` of `file_path` and `transform_matrix`) with the additions of
instant-ngp and nerfstudio: `fl_x`, `fl_y`, `cx`, `cy`, `w`, `h`, `camera_angle_y`, and the lens, `camera_model` (or
`is_fisheye`) with `k1`, `k2`, ..., `p1`, `p2`. They belong to the file or to a frame, which has precedence.
`ply_file_path` names a file of points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._errors import InputError, refusal
from ..._untrusted import JSON_BYTES, is_file, parse_json, read_untrusted
from ..._user_warnings import warn
from ._capture import Capture, build_capture
from ._colmap_files import PointRecord, convert_points, read_points_of_ply
from ._frames import Entry, Frame, warn_of_missing
from ._lenses import Lens, make_lens

_SUFFIXES = ("", ".png", ".jpg", ".jpeg")  # Blender's file_path has none
_ALMOST = 1e-3  # largest deviation of a rotation from orthogonality: files are written with few digits
_PINHOLES = ("PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "PERSPECTIVE", "FULL_OPENCV")
_FISHEYES = ("OPENCV_FISHEYE", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "FISHEYE")
_LENS = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")
_OF_FULL_OPENCV = ("k4", "k5", "k6")
"""Coefficients of a pinhole that only FULL_OPENCV defines. (nerfstudio has another k4, which it ignores.)"""
_NUMBERS = ("camera_angle_x", "camera_angle_y", "fl_x", "fl_y", "cx", "cy", "w", "h", *_LENS)
_POSITIVE = ("camera_angle_x", "camera_angle_y", "fl_x", "fl_y", "w", "h")


def read_transforms(path: Path) -> list[Frame]:
    """Read the frames of a transforms.json whose pictures exist, without opening the pictures.

    Raises:
        InputError: the same errors as `read_scene`.
    """
    return read_scene(path)[0]


def read_scene(path: Path) -> tuple[list[Frame], Path | None]:
    """Read the frames of a transforms.json whose pictures exist, and the path of its file of points, or None.

    Raises:
        InputError: the file cannot be read or is not a transforms.json, a frame is broken, or all pictures are missing.
    """
    whole = _read(path)
    file = Entry(path, "the file itself")
    if not isinstance(whole, dict):
        raise file.make_error(
            "the dataset's file is not in the transforms.json format", [("got", _describe_kind(whole))]
        )
    listed = whole.get("frames")
    if not isinstance(listed, list) or not listed:
        rows = [("frames", "none" if not listed else _describe_kind(listed))]
        raise file.make_error("the dataset's file has no frames", rows, 'Give it "frames": [{"file_path": ...}, ...].')
    shared = _parse_numbers(file, whole)
    frames = [_make_frame(Entry(path, f"frames[{place}]"), frame, shared, whole) for place, frame in enumerate(listed)]
    present = [frame for frame in frames if is_file(frame.image)]
    if not present:
        rows = [("image", str(frames[0].image), "there is no such file")]
        remedy = f"Correct `file_path`, or add the pictures. The suffixes {', '.join(_SUFFIXES[1:])} were tried too."
        raise frames[0].entry.make_error("the pictures of the dataset are missing", rows, remedy)
    warn_of_missing([(frame.entry, frame.image) for frame in frames if not is_file(frame.image)], len(frames))
    points = whole.get("ply_file_path")
    return present, path.parent / points if isinstance(points, str) and points else None


def _read(path: Path) -> Any:
    def make_error(reason: str) -> InputError:
        return InputError(refusal("the dataset's file cannot be read", [("file", str(path)), ("because", reason)]))

    try:
        return parse_json(read_untrusted(path, make_error, JSON_BYTES).decode())
    except json.JSONDecodeError as cause:
        rows = [("file", str(path)), ("line", f"{cause.lineno}, column {cause.colno}"), ("because", cause.msg)]
        raise InputError(refusal("the dataset's file is not valid JSON", rows)) from cause
    except UnicodeDecodeError as cause:
        rows = [("file", str(path)), ("because", str(cause))]
        raise InputError(refusal("the dataset's file is not valid JSON", rows)) from cause


def _make_frame(entry: Entry, fields: Any, shared: Mapping[str, float], whole: Mapping[str, Any]) -> Frame:
    if not isinstance(fields, dict):
        raise entry.make_error(
            "a frame of the dataset is broken", [("got", _describe_kind(fields)), ("expected", "an object")]
        )
    name = fields.get("file_path")
    if not isinstance(name, str) or not name:
        rows = [("file_path", _describe_kind(name)), ("expected", "the path of a picture, from the file's folder")]
        raise entry.make_error("a frame of the dataset names no picture", rows)
    numbers = {**shared, **_parse_numbers(entry, fields)}
    lens = _parse_lens(entry, {**whole, **fields}, numbers)
    return Frame(entry, _find_image(entry, name), _parse_pose(entry, fields.get("transform_matrix")), numbers, lens)


def _find_image(entry: Entry, name: str) -> Path:
    """Return the path of the picture with this name, with a suffix added if needed; unchanged if there is none."""
    path = entry.file.parent / name
    candidates = [path.with_name(path.name + suffix) for suffix in _SUFFIXES] if path.name else [path]
    return next((candidate for candidate in candidates if is_file(candidate)), path)


def _parse_numbers(entry: Entry, fields: Mapping[str, Any]) -> dict[str, float]:
    """Return the camera's numbers in a file or frame, by name. Raise InputError for a value that is not a number."""
    return {name: _parse_number(entry, name, fields[name]) for name in _NUMBERS if fields.get(name) is not None}


def _parse_lens(entry: Entry, fields: Mapping[str, Any], numbers: Mapping[str, float]) -> Lens:
    model = fields.get("camera_model") or ("OPENCV_FISHEYE" if fields.get("is_fisheye") else "PINHOLE")
    coefficients = {name: numbers[name] for name in _LENS if numbers.get(name)}
    rows = [("camera_model", str(model)), *((name, f"{value:g}") for name, value in coefficients.items())]
    if model in _FISHEYES:
        return make_lens("fisheye", coefficients)
    if model not in _PINHOLES:
        rows += [("supported", ", ".join((*_PINHOLES, *_FISHEYES)))]
        remedy = "Undistort the pictures before, as `colmap image_undistorter` does."
        raise entry.make_error("the camera's model is not supported", rows, remedy)
    if model != "FULL_OPENCV" and any(name in coefficients for name in _OF_FULL_OPENCV):
        remedy = 'Write "camera_model": "FULL_OPENCV" if they are the coefficients of its denominator.'
        raise entry.make_error("the camera's model has no such distortion coefficients", rows, remedy)
    return make_lens("pinhole", coefficients)


def _parse_number(entry: Entry, name: str, value: Any) -> float:
    wanted = "a number above 0" if name in _POSITIVE else "a number"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if is_number and name.startswith("camera_angle") and not 0 < value < math.pi:
        wanted, is_number = "radians, above 0 and below pi", False
    if not is_number or (name in _POSITIVE and value <= 0):
        raise entry.make_error(
            f"`{name}` of the dataset has an invalid value", [("got", repr(value)), ("expected", wanted)]
        )
    return float(value)


def _parse_pose(entry: Entry, matrix: Any) -> Tensor:
    """Convert a `transform_matrix` to a pose, (4, 4) float64.

    Raises:
        InputError: it is not a rotation and a position.
    """
    headline = "`transform_matrix` is not the pose of a camera"
    remedy = "Write a matrix from camera to world: a rotation, a position, and the last row 0 0 0 1."
    rows = matrix if isinstance(matrix, list) else []
    shape = (
        f"{len(rows)} rows of {', '.join(sorted({str(len(row)) if isinstance(row, list) else '?' for row in rows}))}"
    )
    if len(rows) not in (3, 4) or any(not isinstance(row, list) or len(row) != 4 for row in rows):
        facts = [("got", shape if rows else _describe_kind(matrix)), ("expected", "4 rows of 4 numbers")]
        raise entry.make_error(headline, facts, remedy)
    for number, row in enumerate(rows):
        for value in row:
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
                raise entry.make_error(headline, [(f"row {number}", str(row), "not all are finite numbers")], remedy)
    pose = torch.eye(4, dtype=torch.float64)
    pose[: len(rows)] = torch.tensor(rows, dtype=torch.float64)
    if not torch.equal(pose[3], torch.eye(4, dtype=torch.float64)[3]):
        raise entry.make_error(headline, [("row 3", str(rows[3]), "not 0 0 0 1")], remedy)
    turn = pose[:3, :3]
    off = (turn @ turn.T - torch.eye(3, dtype=torch.float64)).abs().max().item()
    if off > _ALMOST:
        facts = [("its rotation times its transpose", f"{off:.2g} away from the identity")]
        raise entry.make_error(headline, facts, remedy)
    if torch.linalg.det(turn) < 0:
        raise entry.make_error(headline, [("determinant", "-1", "it is a reflection")], remedy)
    return pose


def _describe_kind(value: Any) -> str:
    return {type(None): "nothing", dict: "an object", list: "a list", str: "a text"}.get(type(value), repr(value))


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
