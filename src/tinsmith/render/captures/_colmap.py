"""`load_colmap`: cameras, images and points of a COLMAP reconstruction, checked entry by entry.

The formats are documented at colmap.github.io/format.html. `_colmap_files` reads text and binary files to the same
records (`CameraRecord`, `ImageRecord`, `PointRecord`), which this file converts to frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ..._errors import InputError, refusal
from ..._untrusted import is_file
from ._capture import Capture, build_capture, convert_to_pose
from ._colmap_files import CameraRecord, ImageRecord, Records, convert_points, read_records
from ._frames import Entry, Frame, warn_of_missing
from ._lenses import CameraModel, Lens, make_lens

_ALMOST = 1e-3  # largest difference of a quaternion's length from 1: text files are written with few digits
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
_TWO_FOCALS = ("PINHOLE", "OPENCV", "FULL_OPENCV", "OPENCV_FISHEYE", "THIN_PRISM_FISHEYE")
_LENSES: dict[str, tuple[CameraModel, tuple[str, ...]]] = {
    "SIMPLE_PINHOLE": ("pinhole", ()),
    "PINHOLE": ("pinhole", ()),
    "SIMPLE_RADIAL": ("pinhole", ("k1",)),
    "RADIAL": ("pinhole", ("k1", "k2")),
    "OPENCV": ("pinhole", ("k1", "k2", "p1", "p2")),
    "FULL_OPENCV": ("pinhole", ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")),
    "SIMPLE_RADIAL_FISHEYE": ("fisheye", ("k1",)),
    "RADIAL_FISHEYE": ("fisheye", ("k1", "k2")),
    "OPENCV_FISHEYE": ("fisheye", ("k1", "k2", "k3", "k4")),
    "THIN_PRISM_FISHEYE": ("fisheye", ("k1", "k2", "p1", "p2", "k3", "k4", "sx1", "sy1")),
}
"""For each camera model: the model without distortion, and the coefficients that follow the principal point."""


def load_colmap(folder: str | Path, images: str | Path = "images") -> Capture:
    """Read the cameras, pictures and points of a COLMAP reconstruction.

    Args:
        folder: a folder with cameras, images and points3D, as .bin or .txt, in itself, in sparse/0 or in sparse; points
            also as .ply.
        images: the folder of the pictures, relative to `folder`. They may be smaller than those that COLMAP saw, as in
            "images_4": intrinsics are scaled to the sizes of the files. A picture may have another suffix there, or
            another name if the two folders have as many pictures: their sorted lists correspond.

    Returns:
        The capture, sorted by the pictures' names. Pictures that are missing are left out, with a warning. Lenses are
        undistorted as gsplat's parser does: pinhole models (SIMPLE_RADIAL, RADIAL, OPENCV, FULL_OPENCV) to the largest
        picture without gaps; fisheyes (SIMPLE_RADIAL_FISHEYE, RADIAL_FISHEYE, OPENCV_FISHEYE, THIN_PRISM_FISHEYE) to
        equidistant ones, with a mask.

    Raises:
        InputError: a file or picture is broken, or all pictures are missing, or the model of a camera is not supported.
            The message names the file and the entry.
        ConfigError: a lens distorts, and OpenCV is not installed.

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
    return build_capture(reconstruction.frames, reconstruction.points, reconstruction.colors, reconstruction.seen)


@dataclass(frozen=True)
class Reconstruction:
    """A COLMAP reconstruction.

    Attributes:
        frames: the pictures and their cameras.
        points: (p, 3) float64, in the world.
        colors: (p, 3) uint8, the points' colors.
        seen: for each frame the indices of the points that it observes; empty if the files do not say.
    """

    frames: list[Frame]
    points: Tensor
    colors: Tensor
    seen: list[Tensor]


def contains_colmap(folder: Path) -> bool:
    """Return True if a folder contains a COLMAP reconstruction, or at least its file of cameras."""
    return next(_find_folders(folder), None) is not None


def read_colmap(folder: Path, images: str | Path = "images") -> Reconstruction:
    """Read the frames and points of a COLMAP reconstruction, without opening the pictures.

    Raises:
        InputError: the same errors as `load_colmap`.
    """
    place = next(_find_folders(folder), None)
    if place is None:
        rows = [("folder", str(folder)), ("expected", "cameras.bin or cameras.txt, here, in sparse/0 or in sparse")]
        raise InputError(refusal("the folder does not contain a COLMAP reconstruction", rows))
    records = read_records(place)
    if not records.images:
        raise InputError(refusal("the reconstruction has no images", [("file", str(records.images_file))]))
    listed = sorted(records.images, key=lambda image: image.name)
    frames = [_make_frame(image, records, folder / images / image.name) for image in listed]
    paths = _find_pictures(folder, folder / images, [image.name for image in listed])
    present = [number for number, path in enumerate(paths) if path is not None]
    if not present:
        rows = [("image", str(frames[0].image), "there is no such file")]
        raise frames[0].entry.make_error(
            "the pictures of the reconstruction are missing", rows, "Pass their folder as `images`."
        )
    warn_of_missing(
        [(frame.entry, frame.image) for frame, path in zip(frames, paths, strict=True) if path is None], len(frames)
    )
    points, colors = convert_points(records.points)
    if not points.isfinite().all():
        place = int((~points.isfinite()).any(1).nonzero()[0, 0])
        entry = Entry(records.points_file, f"point {records.points[place].number}")
        raise entry.make_error("a point of the reconstruction is not finite", [("got", str(points[place].tolist()))])
    seen = _find_observed_points(records, [listed[number].number for number in present]) if records.tracks_known else []
    kept = [replace(frames[number], image=path) for number, path in enumerate(paths) if path is not None]
    return Reconstruction(kept, points, colors, seen)


def _find_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders, of `folder`, its sparse and its sparse/0, that have a file of cameras."""
    for place in (folder / "sparse" / "0", folder / "sparse", folder):
        if any((place / f"cameras{suffix}").is_file() for suffix in (".bin", ".txt")):
            yield place


def _find_pictures(folder: Path, pictures: Path, names: list[str]) -> list[Path | None]:
    """Find the pictures with these names in the folder `pictures`; None for a missing one.

    A picture may have another suffix, or another name if there are as many pictures as in the folder "images".
    """
    exact = [path if is_file(path := pictures / name) else None for name in names]
    if all(path is not None for path in exact):
        return exact
    files = _list_pictures(pictures)
    # Of several suffixes the last one is used: "a.png" rather than "a.jpg".
    by_stem = {file.relative_to(pictures).with_suffix(""): file for file in files}
    near = [path or by_stem.get(Path(name).with_suffix("")) for path, name in zip(exact, names, strict=True)]
    originals = _list_pictures(folder / "images")
    if len(files) != len(originals):
        return near
    order = dict(zip(originals, files, strict=True))
    by_order = [order.get(folder / "images" / name) for name in names]
    # If the order contradicts a name, the pictures do not correspond by order.
    agrees = all(path in (None, other) for path, other in zip(near, by_order, strict=True))
    return by_order if agrees else near


def _list_pictures(folder: Path) -> list[Path]:
    """Return the picture files in a folder and its subfolders, sorted by path."""
    files = [path for path in folder.rglob("*") if path.suffix.lower() in _PICTURES and is_file(path)]
    return sorted(files, key=lambda path: str(path.relative_to(folder)))


def _find_observed_points(records: Records, images: list[int]) -> list[Tensor]:
    """Return, for each of these image numbers, the indices of the points that the image observes, ascending."""
    lengths = torch.tensor([len(point.images) for point in records.points], dtype=torch.int64)
    points = torch.arange(len(lengths)).repeat_interleave(lengths)
    observers = torch.tensor([number for point in records.points for number in point.images], dtype=torch.int64)
    observers, order = observers.sort(stable=True)
    points = points[order]
    wanted = torch.tensor(images)
    first, last = torch.searchsorted(observers, wanted), torch.searchsorted(observers, wanted, right=True)
    return [points[a:b].unique() for a, b in zip(first.tolist(), last.tolist(), strict=True)]


def _make_frame(image: ImageRecord, records: Records, path: Path) -> Frame:
    entry = Entry(records.images_file, f"image {image.number}, {image.name}")
    camera = records.cameras.get(image.camera)
    if camera is None:
        rows = [("camera", str(image.camera)), ("cameras", ", ".join(map(str, sorted(records.cameras))) or "none")]
        raise entry.make_error(
            "an image of the reconstruction refers to a missing camera", rows, "Add the camera, or remove the image."
        )
    numbers, lens = _make_intrinsics(camera, records.cameras_file)
    return Frame(entry, path, convert_to_pose(_make_viewmat(entry, image)), numbers, lens)


def _make_viewmat(entry: Entry, image: ImageRecord) -> Tensor:
    length = math.sqrt(sum(part * part for part in image.quaternion))
    numbers = (*image.quaternion, *image.translation)
    if not all(map(math.isfinite, numbers)) or abs(length - 1) > _ALMOST:
        rows = [("rotation", str(image.quaternion), f"of length {length:.4g}, expected 1")]
        rows += [("translation", str(image.translation))]
        raise entry.make_error(
            "an image of the reconstruction has an invalid pose", rows, "Correct the pose, or remove the image."
        )
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


def _make_intrinsics(camera: CameraRecord, file: Path) -> tuple[dict[str, float], Lens]:
    entry = Entry(file, f"camera {camera.number}")
    if camera.model not in _LENSES:
        rows = [("model", camera.model), ("supported", ", ".join(_LENSES))]
        remedy = "Undistort the pictures before, as `colmap image_undistorter` does."
        raise entry.make_error("the camera's model is not supported", rows, remedy)
    focals = 2 if camera.model in _TWO_FOCALS else 1
    fl_x, fl_y, cx, cy = (*camera.parameters[:1], *camera.parameters[focals - 1 : focals + 2])
    model, names = _LENSES[camera.model]
    distortion = camera.parameters[focals + 2 :]
    if not all(map(math.isfinite, camera.parameters)) or min(fl_x, fl_y, camera.width, camera.height) <= 0:
        rows = [("size", f"{camera.width} x {camera.height}"), ("focal lengths", f"{fl_x:g}, {fl_y:g}")]
        rows += [("principal point", f"{cx:g}, {cy:g}"), ("distortion", ", ".join(f"{k:g}" for k in distortion))]
        rows = [*rows[: 4 if distortion else 3], ("expected", "finite numbers; a size and focal lengths above 0")]
        raise entry.make_error("the camera's parameters are not valid", rows, "Export the model from COLMAP again.")
    numbers = {"fl_x": fl_x, "fl_y": fl_y, "cx": cx, "cy": cy, "w": camera.width, "h": camera.height}
    return numbers, make_lens(model, dict(zip(names, distortion, strict=True)))
