"""COLMAP's reconstructions: cameras, images and points, from text or from binary files, checked entry by entry.

The formats are documented at colmap.github.io/format.html. Both give the same records (`_Camera`, `_Image`, `_Point`);
what follows from them is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..._errors import InputError, refusal
from ._capture import Capture, capture_of, pose_of
from ._colmap_files import CameraRecord, ImageRecord, Records, read_records
from ._frames import Entry, Frame

_ALMOST = 1e-3  # how far from 1 a quaternion's length may be: text files are written with few digits
_PERSPECTIVE = {"SIMPLE_PINHOLE": 1, "PINHOLE": 2, "SIMPLE_RADIAL": 1, "RADIAL": 1, "OPENCV": 2, "FULL_OPENCV": 2}
"""Models that are pinholes where they do not distort, and how many focal lengths they have."""
_UNDISTORT = "Undistort the pictures first, as `colmap image_undistorter` does."


def load_colmap(folder: str | Path, images: str | Path = "images") -> Capture:
    """Read the cameras, pictures and points of a COLMAP reconstruction.

    Args:
        folder: a folder with cameras, images and points3D, as .bin or .txt, in itself, in sparse/0 or in sparse.
        images: the folder of the pictures, relative to `folder`.

    Returns:
        The capture, sorted by the pictures' names.

    Raises:
        InputError: a file or picture is missing or broken, or a lens distorts; names the file and the entry.

    Example:
        >>> import pathlib, PIL.Image
        >>> pathlib.Path("images").mkdir()
        >>> PIL.Image.new("RGB", (64, 48)).save("images/view.png")
        >>> for name, text in {
        ...     "cameras": "1 PINHOLE 64 48 50 50 32 24",
        ...     "images": "1 1 0 0 0 3 -1 2 1 view.png",
        ...     "points3D": "1 0.5 0 1 255 0 0 0.1",
        ... }.items():
        ...     _ = pathlib.Path(f"{name}.txt").write_text(text)
        >>> capture = ts.render.load_colmap(".")
        >>> capture.viewmats[0, :3, 3]
        tensor([ 3., -1.,  2.], dtype=torch.float64)
        >>> capture.points
        tensor([[0.5000, 0.0000, 1.0000]], dtype=torch.float64)
    """
    reconstruction = read_colmap(Path(folder), images)
    return capture_of(reconstruction.frames, reconstruction.points, reconstruction.colors)


@dataclass(frozen=True)
class Reconstruction:
    """Frames, and points (p, 3) float64 with colors (p, 3) uint8."""

    frames: list[Frame]
    points: Tensor
    colors: Tensor


def holds_colmap(folder: Path) -> bool:
    """Whether a folder holds a reconstruction of COLMAP's, or a part of one."""
    return next(_files(folder), None) is not None


def read_colmap(folder: Path, images: str | Path = "images") -> Reconstruction:
    """The frames and points of a reconstruction; the pictures themselves are not read.

    Raises:
        InputError: as `load_colmap`.
    """
    files = next(_files(folder), None)
    if files is None:
        rows = [("folder", str(folder)), ("expected", "cameras.bin or cameras.txt, here, in sparse/0 or in sparse")]
        raise InputError(refusal("the folder holds no reconstruction of COLMAP's", rows))
    records = read_records(*files)
    if not records.images:
        raise InputError(refusal("the reconstruction has no images", [("file", str(records.images_file))]))
    listed = sorted(records.images, key=lambda image: image.name)
    frames = [_frame(image, records, folder / images) for image in listed]
    points = torch.tensor([point.position for point in records.points], dtype=torch.float64).view(-1, 3)
    colors = torch.tensor([point.color for point in records.points], dtype=torch.uint8).view(-1, 3)
    if not points.isfinite().all():
        place = int((~points.isfinite()).any(1).nonzero()[0, 0])
        entry = Entry(records.points_file, f"point {records.points[place].number}")
        raise entry.make_error("a point of the reconstruction is not finite", [("got", str(points[place].tolist()))])
    return Reconstruction(frames, points, colors)


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Folders and suffixes in which there are cameras; binary ones first, as COLMAP itself prefers them."""
    for place in (folder / "sparse" / "0", folder / "sparse", folder):
        for suffix in (".bin", ".txt"):
            if (place / f"cameras{suffix}").is_file():
                yield place, suffix


def _frame(image: ImageRecord, records: Records, pictures: Path) -> Frame:
    entry = Entry(records.images_file, f"image {image.number}, {image.name}")
    camera = records.cameras.get(image.camera)
    if camera is None:
        rows = [("camera", str(image.camera)), ("cameras", ", ".join(map(str, sorted(records.cameras))) or "none")]
        raise entry.make_error("an image of the reconstruction refers to a missing camera", rows)
    path = pictures / image.name
    if not path.is_file():
        raise entry.make_error("a picture of the reconstruction is missing", [("image", str(path), "there is none")])
    return Frame(entry, path, pose_of(_viewmat(entry, image)), _intrinsics(camera, records.cameras_file))


def _viewmat(entry: Entry, image: ImageRecord) -> Tensor:
    length = math.sqrt(sum(part * part for part in image.quaternion))
    numbers = (*image.quaternion, *image.translation)
    if not all(map(math.isfinite, numbers)) or abs(length - 1) > _ALMOST:
        rows = [("rotation", str(image.quaternion), f"of length {length:.4g}, expected 1")]
        rows += [("translation", str(image.translation))]
        raise entry.make_error("an image of the reconstruction has no pose", rows)
    w, x, y, z = (part / length for part in image.quaternion)
    rotation = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    viewmat = torch.eye(4, dtype=torch.float64)
    viewmat[:3, :3] = torch.tensor(rotation, dtype=torch.float64)
    viewmat[:3, 3] = torch.tensor(image.translation, dtype=torch.float64)
    return viewmat


def _intrinsics(camera: CameraRecord, file: Path) -> dict[str, float]:
    entry = Entry(file, f"camera {camera.number}")
    focals = _PERSPECTIVE.get(camera.model)
    if focals is None:
        raise entry.make_error("the camera is not a pinhole", [("model", camera.model)], _UNDISTORT)
    distortion = camera.parameters[focals + 2 :]
    if any(distortion):
        rows = [("model", camera.model), ("distortion", ", ".join(f"{value:g}" for value in distortion))]
        raise entry.make_error("the camera's lens distorts, which is not understood here", rows, _UNDISTORT)
    fl_x, fl_y, cx, cy = (*camera.parameters[:1], *camera.parameters[focals - 1 : focals + 2])
    is_finite = all(map(math.isfinite, (fl_x, fl_y, cx, cy)))
    if not is_finite or min(fl_x, fl_y, camera.width, camera.height) <= 0:
        rows = [("size", f"{camera.width} x {camera.height}"), ("focal lengths", f"{fl_x:g}, {fl_y:g}")]
        rows += [("principal point", f"{cx:g}, {cy:g}")]
        raise entry.make_error("the camera's numbers are not those of a camera", rows)
    return {"fl_x": fl_x, "fl_y": fl_y, "cx": cx, "cy": cy, "w": camera.width, "h": camera.height}
