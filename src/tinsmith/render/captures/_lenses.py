"""Lenses: the distortion of a camera, and undistortion of its pictures.

A pinhole camera stays a pinhole. A fisheye becomes an ideal (equidistant) one: the distance of a pixel from the center
of the picture is proportional to the angle. Both keep the file's pose; intrinsics, size and, for a fisheye, the mask
are those of gsplat's parser.

Pixel coordinates are those of the files: the first pixel's center is at (0.5, 0.5). In OpenCV it is at (0, 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..._cache import cache_results
from ..._extras import require_packages

CameraModel = Literal["pinhole", "fisheye"]
Array = np.ndarray[Any, np.dtype[Any]]
_KEPT_CAMERAS = 64  # a capture has few cameras, each with many pictures
_KEPT_MAPS = 2  # cameras whose maps are kept: two of 12 million pixels are 200 MB


@dataclass(frozen=True)
class Lens:
    """The distortion of a camera.

    Attributes:
        model: the model of the camera without distortion.
        coefficients: in the order of OpenCV, up to the last one that is not 0: for a pinhole k1, k2, p1, p2, k3, k4,
            k5, k6; for a fisheye k1, k2, k3, k4, followed by COLMAP's p1, p2, sx1, sy1.
    """

    model: CameraModel
    coefficients: tuple[float, ...]

    @property
    def is_distorting(self) -> bool:
        return any(self.coefficients)

    @property
    def eight_coefficients(self) -> tuple[float, ...]:
        """The coefficients, padded with zeros to eight."""
        return (*self.coefficients, *([0.0] * (8 - len(self.coefficients))))


_ORDERS: dict[CameraModel, tuple[str, ...]] = {
    "pinhole": ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"),
    "fisheye": ("k1", "k2", "k3", "k4", "p1", "p2", "sx1", "sy1"),
}


def make_lens(model: CameraModel, coefficients: Mapping[str, float]) -> Lens:
    """Build the lens of a camera model with these coefficients, by name; others are 0."""
    values = [coefficients.get(name, 0.0) for name in _ORDERS[model]]
    while values and not values[-1]:
        values.pop()
    return Lens(model, tuple(values))


@dataclass(frozen=True)
class Camera:
    """A camera without distortion.

    Attributes:
        model: "pinhole" or "fisheye".
        focal: the focal lengths along x and y, pixels.
        center: the principal point, pixels.
        size: width and height of its picture.
        undistortion: the map from the picture that was taken to its own; None if they are the same.
    """

    model: CameraModel
    focal: tuple[float, float]
    center: tuple[float, float]
    size: tuple[int, int]
    undistortion: Undistortion | None = None

    @property
    def intrinsics(self) -> Tensor:
        """The matrix of intrinsics, (3, 3) float64, in pixels."""
        rows = [[self.focal[0], 0, self.center[0]], [0, self.focal[1], self.center[1]], [0, 0, 1]]
        return torch.tensor(rows, dtype=torch.float64)

    def project(self, points: Tensor) -> Tensor:
        """Project points (n, 3) in camera space, in front of the camera, to pixels (n, 2)."""
        flat = points[:, :2] / points[:, 2:]
        if self.model == "fisheye":
            length = points[:, :2].norm(dim=1)
            angle = torch.atan2(length, points[:, 2])
            flat = points[:, :2] * (angle / length.clamp(min=torch.finfo(length.dtype).tiny))[:, None]
        return flat * flat.new_tensor(self.focal) + flat.new_tensor(self.center)


@dataclass(frozen=True)
class Undistortion:
    """The undistortion of a camera's pictures.

    Attributes:
        lens: the lens of the camera that took the picture.
        taken: that camera, with its distortion ignored.
        focal, center: focal lengths and principal point of the camera without distortion, before the crop.
        crop: the first column, the first row, the number of columns and of rows that are kept.
    """

    lens: Lens
    taken: Camera
    focal: tuple[float, float]
    center: tuple[float, float]
    crop: tuple[int, int, int, int]

    def apply(self, pixels: Array) -> Array:
        """Remove the distortion from a picture. Pixels that the camera did not see are 0.

        Args:
            pixels: (height, width, channels), of the size of `taken`.
        """
        import cv2  # not needed to import tinsmith; `undistort_camera` has checked that it is installed

        across, down, is_seen = _build_maps(self)
        # A pixel at the edge may map to slightly outside of the picture: without replication it would be darkened.
        straight = cv2.remap(pixels, across, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        straight = straight.reshape(*straight.shape[:2], -1)
        return straight if is_seen is None else straight * is_seen[..., None].astype(straight.dtype)

    @property
    def mask(self) -> Array | None:
        """The pixels that the camera has seen, (height, width) bool; None for all of them."""
        return _build_maps(self)[2]


def undistort_camera(taken: Camera, lens: Lens) -> Camera | None:
    """Compute the camera without the distortion of its lens; None if no pixel of its pictures would be left.

    Args:
        taken: the camera that took the pictures, with its distortion ignored.
        lens: its lens.

    Raises:
        ConfigError: OpenCV is not installed.
    """
    if not lens.is_distorting:
        return replace(taken, model=lens.model)
    require_packages("reading pictures of a camera whose lens distorts", "captures", "cv2")
    return _find_camera(taken, lens)


@cache_results("cameras", _KEPT_CAMERAS)
def _find_camera(taken: Camera, lens: Lens) -> Camera | None:
    find_view = _find_pinhole if lens.model == "pinhole" else _find_fisheye
    undistortion = find_view(taken, lens)
    x, y, width, height = undistortion.crop
    numbers = (*undistortion.focal, *undistortion.center)
    if width < 1 or height < 1 or not np.isfinite(numbers).all() or min(undistortion.focal) <= 0:
        return None
    center = (undistortion.center[0] - x, undistortion.center[1] - y)
    return Camera(lens.model, undistortion.focal, center, (width, height), undistortion)


def _find_pinhole(taken: Camera, lens: Lens) -> Undistortion:
    """Compute the undistortion to the largest pinhole view in which the camera has seen all pixels."""
    import cv2

    matrix = taken.intrinsics.numpy()
    view, crop = cv2.getOptimalNewCameraMatrix(matrix, np.array(lens.eight_coefficients), taken.size, 0)
    x, y, width, height = map(int, crop)
    focal, center = (float(view[0, 0]), float(view[1, 1])), (float(view[0, 2]), float(view[1, 2]))
    return Undistortion(lens, taken, focal, center, (x, y, width, height))


def _find_fisheye(taken: Camera, lens: Lens) -> Undistortion:
    """Compute the undistortion to an equidistant fisheye of the same scale, cropped to the pixels that were seen."""
    whole = Undistortion(lens, taken, taken.focal, taken.center, (0, 0, *taken.size))
    # The crop is gsplat's, with pixel centers at whole numbers.
    rows, columns = np.nonzero(_is_inside(*_distort_grid(whole, 0.0), taken.size))
    if not len(rows):
        return replace(whole, crop=(0, 0, 0, 0))
    x, y = int(columns.min()), int(rows.min())
    return replace(whole, crop=(x, y, int(columns.max()) + 1 - x, int(rows.max()) + 1 - y))


@cache_results("maps of cameras", _KEPT_MAPS)
def _build_maps(how: Undistortion) -> tuple[Array, Array, Array | None]:
    """Compute, for each pixel after the crop, its column and row in the taken picture, and the mask of seen pixels.

    The mask is None for a pinhole, which has seen all.
    """
    across, down = _distort_grid(how, 0.5)
    mask = None if how.lens.model == "pinhole" else _is_inside(across, down, how.taken.size)
    x, y, width, height = how.crop
    part = (slice(y, y + height), slice(x, x + width))
    maps = [np.ascontiguousarray(given[part], dtype=np.float32) for given in (across, down)]
    return maps[0], maps[1], None if mask is None else mask[part]


def _distort_grid(how: Undistortion, middle: float) -> tuple[Array, Array]:
    """Compute the column and row in the taken picture of each undistorted pixel, before the crop.

    `middle` is the coordinate of the first pixel's center: 0.5 as in the files, or 0.
    """
    width, height = how.taken.size
    x = ((np.arange(width) + middle - how.center[0]) / how.focal[0])[None]
    y = ((np.arange(height) + middle - how.center[1]) / how.focal[1])[:, None]
    distort = _distort_pinhole if how.lens.model == "pinhole" else _distort_fisheye
    x, y = distort(x, y, *how.lens.eight_coefficients)
    taken = how.taken
    return x * taken.focal[0] + taken.center[0] - middle, y * taken.focal[1] + taken.center[1] - middle


def _is_inside(across: Array, down: Array, size: tuple[int, int]) -> Array:
    return (across > 0) & (down > 0) & (across < size[0] - 1) & (down < size[1] - 1)


def _distort_pinhole(
    x: Array, y: Array, k1: float, k2: float, p1: float, p2: float, k3: float, k4: float, k5: float, k6: float
) -> tuple[Array, Array]:
    """Apply the distortion of OpenCV's pinhole model (COLMAP's FULL_OPENCV) to normalized image coordinates."""
    r2 = x * x + y * y
    radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
    tilted_x = 2 * p1 * x * y + p2 * (r2 + 2 * x * x)
    tilted_y = p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
    return x * radial + tilted_x, y * radial + tilted_y


def _distort_fisheye(
    x: Array, y: Array, k1: float, k2: float, k3: float, k4: float, p1: float, p2: float, sx1: float, sy1: float
) -> tuple[Array, Array]:
    """Apply the distortion of COLMAP's THIN_PRISM_FISHEYE to image coordinates whose length is the angle."""
    r2 = x * x + y * y
    radial = 1 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4)))
    tilted_x = 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + sx1 * r2
    tilted_y = 2 * p2 * x * y + p1 * (r2 + 2 * y * y) + sy1 * r2
    return x * radial + tilted_x, y * radial + tilted_y
