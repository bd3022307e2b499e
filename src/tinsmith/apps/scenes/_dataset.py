"""Datasets in a folder: read, shrunk, and split into training views and held-out views; written."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..._errors import InputError, refusal
from ...render.captures import Frame, contains_colmap, read_colmap, read_transforms
from .._files import replace_when_whole, require_dataset, require_writable
from .._photo import open_image
from ._views import NO_POINTS, Dataset, Points, Views, make_dataset

_TRAIN, _TEST, _VAL, _ALL = (f"transforms{part}.json" for part in ("_train", "_test", "_val", ""))
_LEAST_SIDE = 11  # pixels: the size of SSIM's window
_EVERY = 8  # without a file of test views, every eighth view is held out, as is customary


def read_dataset(folder: Path, size: int) -> Dataset:
    """Read the views of a folder, shrunk so that no side of a picture exceeds `size`.

    The views of transforms_train.json are for training, those of transforms_test.json (or else transforms_val.json) are
    held out. If the latter are missing, or if there is only transforms.json, every eighth view is held out; likewise
    for a reconstruction of COLMAP, which also has points.

    Raises:
        InputError: something is missing or broken. The message names the file and the entry.
    """
    require_dataset(folder)
    learned, held_out, points = _list_frames(folder)
    sizes: dict[str, tuple[int, int]] = {}
    train, test = (_load_views(folder, listed, size, sizes) for listed in (learned, held_out))
    return make_dataset(folder.resolve().name, train, test, points)


def _list_frames(folder: Path) -> tuple[list[Frame], list[Frame], Points]:
    """Return the frames for training, the held-out frames, and the points of a folder."""
    first = next((folder / name for name in (_TRAIN, _ALL) if (folder / name).is_file()), None)
    if first is not None:
        listed, points = read_transforms(first), NO_POINTS
    elif contains_colmap(folder):
        reconstruction = read_colmap(folder)
        listed, points = reconstruction.frames, Points(reconstruction.points, reconstruction.colors)
    else:
        rows = [("dataset", str(folder)), ("expected", f"{_TRAIN}, {_ALL}, or COLMAP's cameras.bin or cameras.txt")]
        raise InputError(refusal("the folder does not contain a dataset", rows))
    others = [folder / name for name in (_TEST, _VAL) if (folder / _TRAIN).is_file() and (folder / name).is_file()]
    if others:
        return listed, read_transforms(others[0]), points
    if len(listed) < 2:
        rows = [("file", str(listed[0].entry.file)), ("frames", str(len(listed)))]
        words = "the dataset has too few frames"
        raise InputError(refusal(words, [*rows, ("expected", "2 or more, to hold some out")]))
    return [frame for place, frame in enumerate(listed) if place % _EVERY], listed[::_EVERY], points


def _load_views(folder: Path, listed: list[Frame], size: int, sizes: dict[str, tuple[int, int]]) -> Views:
    """Read the pictures of frames: undistort and shrink them. Return them as views, with the cameras.

    `sizes` has the original size of the first picture by its file; all others must have the same size. Updated.
    """
    pictures: list[Tensor] = []
    intrinsics: list[Tensor] = []
    for frame in listed:
        image = open_image(frame.image, frame.entry.rows).convert("RGBA")
        camera = frame.camera(*image.size)
        if camera.model != "pinhole":
            rows = [("image", str(frame.image)), ("model", camera.model)]
            remedy = "Undistort the pictures before, as `colmap image_undistorter` does."
            raise frame.entry.make_error("a camera of the dataset is not a pinhole", rows, remedy)
        if camera.undistortion is not None:
            image = Image.fromarray(camera.undistortion.apply(np.asarray(image)))
        first, wanted = next(iter(sizes.items())) if sizes else (str(frame.image), image.size)
        sizes.setdefault(first, wanted)
        if image.size != wanted:
            rows = [(first, _format_size(wanted)), (str(frame.image), _format_size(image.size))]
            remedy = "Resize all pictures of the dataset to one size."
            raise frame.entry.make_error("the dataset's pictures differ in size", rows, remedy)
        matrix, small = camera.intrinsics, _shrink_picture(image, size)
        if min(small.size) < _LEAST_SIDE:
            rows = [("image", str(frame.image), f"{_format_size(small.size)} pixels")]
            raise frame.entry.make_error(f"a side has fewer than {_LEAST_SIDE} pixels", rows, "Raise --size.")
        scale = matrix.new_tensor([small.width / image.width, small.height / image.height, 1])
        intrinsics.append(matrix * scale[:, None])
        pictures.append(torch.from_numpy(np.array(small, dtype=np.uint8)))
    names = tuple(_name(folder, frame.image) for frame in listed)
    poses = torch.stack([frame.pose for frame in listed])
    return Views(names, torch.stack(pictures), poses, torch.stack(intrinsics))


def _format_size(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


def _name(folder: Path, image: Path) -> str:
    return str(image.relative_to(folder)) if image.is_relative_to(folder) else str(image)


def _shrink_picture(image: Image.Image, size: int) -> Image.Image:
    """Scale an image down so that no side exceeds `size`.

    Pixels are weighted by their alpha, so that transparent ones do not tint the edges.
    """
    shrink = max(image.size) / size
    if shrink <= 1:
        return image
    sides = (max(1, round(image.width / shrink)), max(1, round(image.height / shrink)))
    return image.convert("RGBa").resize(sides, Image.Resampling.BOX, reducing_gap=None).convert("RGBA")


def write_dataset(folder: Path, dataset: Dataset) -> None:
    """Write a dataset whose cameras share their intrinsics in Blender's format. Raise InputError if a file cannot be
    written.
    """
    for part, views in ((_TRAIN, dataset.train), (_TEST, dataset.test)):
        for name, pixels in zip(views.names, views.pictures, strict=True):
            require_writable((folder / name).parent)
            with replace_when_whole(folder / name) as beside:
                Image.fromarray(pixels.numpy()).save(beside)
        text = json.dumps(_transforms(views, dataset.width), indent=1) + "\n"
        with replace_when_whole(folder / part) as beside:
            beside.write_text(text, encoding="utf-8")


def _transforms(views: Views, width: int) -> dict[str, object]:
    focal = views.intrinsics[0, 0, 0].item()
    listed = [
        {"file_path": f"./{Path(name).with_suffix('')}", "transform_matrix": pose.tolist()}
        for name, pose in zip(views.names, views.poses, strict=True)
    ]
    return {"camera_angle_x": 2 * math.atan(width / 2 / focal), "frames": listed}
