"""Readers of COLMAP's text and binary files, and of points in PLY files. `_colmap` interprets the records."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..._errors import InputError, refusal
from ..._untrusted import open_untrusted, read_untrusted
from .._ply import read_vertices
from ._frames import Entry

_MOST_COLOR = 255
_MOST_NUMBER = 2**63 - 1  # largest number of an image, a camera or a point that a tensor can hold
_MOST_SIDE = 2**31 - 1  # pixels
_GRAY = 128  # red, green and blue of points in a file without colors

MODELS = {
    "SIMPLE_PINHOLE": 3,
    "PINHOLE": 4,
    "SIMPLE_RADIAL": 4,
    "RADIAL": 5,
    "OPENCV": 8,
    "OPENCV_FISHEYE": 8,
    "FULL_OPENCV": 12,
    "FOV": 5,
    "SIMPLE_RADIAL_FISHEYE": 4,
    "RADIAL_FISHEYE": 5,
    "THIN_PRISM_FISHEYE": 12,
    "RAD_TAN_THIN_PRISM_FISHEYE": 16,
}
"""The number of parameters of each camera model, in the order of the models' numbers in binary files."""


@dataclass(frozen=True)
class CameraRecord:
    """A camera of a reconstruction: the name of its model, its pictures' size in pixels, the model's parameters."""

    number: int
    model: str
    width: int
    height: int
    parameters: tuple[float, ...]


@dataclass(frozen=True)
class ImageRecord:
    """A picture of a reconstruction: its file, its camera's number, and its pose, world to camera.

    The rotation is a quaternion w x y z.
    """

    number: int
    quaternion: tuple[float, ...]
    translation: tuple[float, ...]
    camera: int
    name: str


@dataclass(frozen=True)
class PointRecord:
    """A point of a reconstruction: position, color from 0 to 255, and the numbers of the images that observe it."""

    number: int
    position: tuple[float, ...]
    color: tuple[int, ...]
    images: tuple[int, ...] = ()


@dataclass(frozen=True)
class Records:
    """The contents and the paths of a reconstruction's three files. Without a file of points, `points` is empty.

    `tracks_known` is False if the file of points does not say which images observe them.
    """

    cameras: dict[int, CameraRecord]
    images: list[ImageRecord]
    points: list[PointRecord]
    cameras_file: Path
    images_file: Path
    points_file: Path
    tracks_known: bool


def read_records(folder: Path) -> Records:
    """Read the three files of a reconstruction from a folder: each as .bin or .txt, points also as .ply.

    If several formats are present, the first one of these is read.

    Raises:
        InputError: a file is missing or broken.
    """
    cameras_file = _find_file(folder, "cameras", (".bin", ".txt"))
    images_file = _find_file(folder, "images", (cameras_file.suffix, ".bin", ".txt"))
    points_file = _find_file(folder, "points3D", (cameras_file.suffix, ".bin", ".txt", ".ply"))
    cameras: list[CameraRecord] = _read(cameras_file, _CAMERAS)
    images: list[ImageRecord] = _read(images_file, _IMAGES)
    points: list[PointRecord] = []
    if points_file.exists():
        points = read_points_of_ply(points_file) if points_file.suffix == ".ply" else _read(points_file, _POINTS)
    by_number = {camera.number: camera for camera in cameras}
    for path, records in ((cameras_file, cameras), (images_file, images)):
        twice = [number for number, times in Counter(record.number for record in records).items() if times > 1]
        if twice:
            rows = [("file", str(path)), ("number", str(twice[0]))]
            headline = "two entries of the reconstruction have the same number"
            raise InputError(refusal(headline, rows, "Remove one of them, or export the reconstruction again."))
    tracks_known = points_file.exists() and points_file.suffix != ".ply"
    return Records(by_number, images, points, cameras_file, images_file, points_file, tracks_known)


def _find_file(folder: Path, name: str, suffixes: tuple[str, ...]) -> Path:
    candidates = [folder / f"{name}{suffix}" for suffix in suffixes]
    return next((path for path in candidates if path.is_file()), candidates[0])


def _read(path: Path, form: _Form) -> list[Any]:
    return _read_binary(path, form) if path.suffix == ".bin" else _read_text(path, form)


def read_points_of_ply(path: Path) -> list[PointRecord]:
    """Read the points of a PLY file: x, y, z, and red, green, blue; gray for colors that the file does not have.

    Raises:
        InputError: the file is missing, broken, or has no positions.
    """

    def make_error(reason: str) -> InputError:
        rows = [("file", str(path)), ("because", reason)]
        remedy = "Export the points again, as a PLY file with x, y and z, and colors from 0 to 255."
        return InputError(refusal("a file of points cannot be read", rows, remedy))

    with open_untrusted(path, make_error) as file:
        vertices = read_vertices(file, make_error)
    names = vertices.dtype.names or ()
    missing = [name for name in ("x", "y", "z") if name not in names]
    if missing:
        raise make_error(f"there is no property {missing[0]}")
    for name in ("x", "y", "z"):
        if not np.isfinite(vertices[name]).all():
            raise make_error(f"{name} of a point is not finite")
    for name in ("red", "green", "blue"):
        if name in names and not ((vertices[name] >= 0) & (vertices[name] <= _MOST_COLOR)).all():
            raise make_error(f"{name} of a point is not from 0 to {_MOST_COLOR}")
    positions = [vertices[name].tolist() for name in ("x", "y", "z")]
    colors = [
        vertices[name].astype(int).tolist() if name in names else [_GRAY] * len(vertices)
        for name in ("red", "green", "blue")
    ]
    rows = zip(zip(*positions, strict=True), zip(*colors, strict=True), strict=True)
    return [PointRecord(number, position, color) for number, (position, color) in enumerate(rows)]


def convert_points(records: list[PointRecord]) -> tuple[Tensor, Tensor]:
    """Convert point records to tensors: positions (p, 3) float64 and colors (p, 3) uint8."""
    points = torch.tensor([point.position for point in records], dtype=torch.float64).view(-1, 3)
    return points, torch.tensor([point.color for point in records], dtype=torch.uint8).view(-1, 3)


# Text ------------------------------------------------------------------------------------------


def _read_text(path: Path, form: _Form) -> list[Any]:
    make_error = partial(_make_unreadable_error, path)
    try:
        lines = read_untrusted(path, make_error).decode().split("\n")
    except UnicodeDecodeError as cause:
        raise make_error(str(cause)) from cause
    numbered = [(place, line) for place, line in enumerate(lines, 1) if not line.lstrip().startswith("#")]
    return [_parse_line(path, place, line, form) for place, line in form.lines(numbered)]


def _parse_line(path: Path, place: int, line: str, form: _Form) -> Any:
    try:
        return form.parse(line)
    except (ValueError, IndexError) as cause:
        entry = Entry(path, f"line {place}")
        rows = [("got", line[:80] + "..." * (len(line) > 80)), ("expected", form.description)]
        raise entry.make_error("a line of the reconstruction is broken", rows) from cause


def _drop_empty_lines(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    return (pair for pair in lines if pair[1].strip())


def _take_first_lines(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the first line of each image's two lines. The second has the image's 2-D points, and may be empty."""
    remaining = iter(lines)
    for place, line in remaining:
        if line.strip():
            next(remaining, None)
            yield place, line


def _parse_whole(word: str, most: int = _MOST_NUMBER) -> int:
    number = int(word)
    if abs(number) > most:
        raise ValueError(word)
    return number


def _parse_camera(line: str) -> CameraRecord:
    number, model, width, height, *parameters = line.split()
    if len(parameters) != MODELS.get(model, len(parameters)):
        raise ValueError(model)
    size = _parse_whole(width, _MOST_SIDE), _parse_whole(height, _MOST_SIDE)
    return CameraRecord(_parse_whole(number), model, *size, tuple(map(float, parameters)))


def _parse_image(line: str) -> ImageRecord:
    number, *numbers, camera, name = line.split(maxsplit=9)
    w, x, y, z, *translation = map(float, numbers)
    if len(translation) != 3:
        raise ValueError(line)
    pose = ((w, x, y, z), tuple(translation))
    return ImageRecord(_parse_whole(number), *pose, _parse_whole(camera), name.rstrip())


def _parse_point(line: str) -> PointRecord:
    number, *rest = line.split()
    if len(rest) < 7:
        raise ValueError(line)
    color, track = tuple(map(int, rest[3:6])), tuple(map(_parse_whole, rest[7:]))
    if not all(0 <= part <= 255 for part in color) or len(track) % 2:
        raise ValueError(line)
    return PointRecord(_parse_whole(number), tuple(map(float, rest[:3])), color, track[::2])


# Binary ----------------------------------------------------------------------------------------


class _Bytes:
    """A reader of a binary file, which keeps its position."""

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, 0
        self.held = read_untrusted(path, partial(_make_unreadable_error, path))

    def take(self, form: str) -> tuple[Any, ...]:
        """Read little-endian numbers without padding. `form` is a format of the module `struct`."""
        values = struct.Struct("<" + form)
        self.skip(values.size)
        return values.unpack_from(self.held, self.place - values.size)

    def skip(self, count: int) -> None:
        """Advance the position by `count` bytes. Raise InputError if the file is shorter."""
        if self.place + count > len(self.held):
            raise self.make_error("it ends too early")
        self.place += count

    def text(self) -> str:
        """Read a UTF-8 string that ends with a byte 0."""
        end = self.held.find(b"\0", self.place)
        if end < 0:
            raise self.make_error("a name does not end with a zero byte")
        begin, self.place = self.place, end + 1
        try:
            return self.held[begin:end].decode("utf-8")
        except UnicodeDecodeError as cause:
            raise self.make_error("a name is not valid UTF-8") from cause

    def make_error(self, reason: str) -> InputError:
        """Return an error with this reason that names the file and the current position."""
        rows = [("file", str(self.path)), ("byte", f"{self.place} of {len(self.held)}"), ("because", reason)]
        remedy = "Export the reconstruction again."
        return InputError(refusal("a binary file of the reconstruction is broken", rows, remedy))


def _read_binary(path: Path, form: _Form) -> list[Any]:
    source = _Bytes(path)
    (count,) = source.take("Q")
    records = [form.take(source) for _ in _check_count(source, count)]
    if source.place != len(source.held):
        raise source.make_error(f"more bytes follow its {count} entries")
    return records


def _check_count(source: _Bytes, count: int) -> range:
    if count > len(source.held):  # each entry takes at least a byte; a wrong count could take hours to read
        raise source.make_error(f"it is too short for {count} entries")
    return range(count)


def _take_camera(source: _Bytes) -> CameraRecord:
    number, model, width, height = source.take("iiQQ")
    if not 0 <= model < len(MODELS):
        raise source.make_error(f"there is no camera model with number {model}")
    if max(width, height) > _MOST_SIDE:
        sizes = f"{width} x {height} pixels, more than {_MOST_SIDE:,} on a side"
        raise source.make_error(f"camera {number} has pictures of {sizes}")
    name, count = list(MODELS.items())[model]
    return CameraRecord(number, name, width, height, source.take(f"{count}d"))


def _take_image(source: _Bytes) -> ImageRecord:
    number, *pose, camera = source.take("i7di")
    name = source.text()
    (points,) = source.take("Q")
    source.skip(24 * points)
    return ImageRecord(number, tuple(pose[:4]), tuple(pose[4:]), camera, name)


def _take_point(source: _Bytes) -> PointRecord:
    number, *values, length = source.take("Q3d3BdQ")
    _check_count(source, length)
    return PointRecord(number, tuple(values[:3]), tuple(values[3:6]), source.take(f"{2 * length}i")[::2])


def _make_unreadable_error(path: Path, reason: str) -> InputError:
    rows = [("file", str(path)), ("because", reason)]
    return InputError(refusal("a file of the reconstruction cannot be read", rows))


@dataclass(frozen=True)
class _Form:
    """The text and binary format of entries of one kind.

    Attributes:
        description: the fields of a line, for error messages.
        lines: a function from numbered lines to those with an entry.
        parse: a function from a line to a record.
        take: a function that reads a record from a binary file.
    """

    description: str
    lines: Callable[[list[tuple[int, str]]], Iterator[tuple[int, str]]]
    parse: Callable[[str], Any]
    take: Callable[[_Bytes], Any]


_CAMERAS = _Form("CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]", _drop_empty_lines, _parse_camera, _take_camera)
_IMAGES = _Form("IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME", _take_first_lines, _parse_image, _take_image)
_POINTS = _Form("POINT3D_ID X Y Z R G B ERROR TRACK[]", _drop_empty_lines, _parse_point, _take_point)
