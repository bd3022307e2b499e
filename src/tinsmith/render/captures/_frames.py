"""Frames: a picture's file, the camera that took it, and the file and entry that describe them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from ..._errors import InputError, refusal
from ..._user_warnings import warn
from ._lenses import Camera, Lens, undistort_camera

_ROUNDING = 1.0  # pixels: the sides of a resized picture were rounded in some way
_STRETCH = 0.02  # largest relative difference between the scales of the two sides of a resized picture
_LISTED = 3  # number of missing pictures that a warning names


@dataclass(frozen=True)
class Entry:
    """The place of a frame in a file, for error messages: the file, and the entry in it."""

    file: Path
    place: str

    def make_error(self, headline: str, rows: list[tuple[str, ...]], remedy: str = "") -> InputError:
        """Return an error with this headline that names the file and the entry, followed by further rows."""
        return InputError(refusal(headline, [*self.rows, *rows], remedy))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The file and the entry as rows of an error message."""
        return [("file", str(self.file)), ("entry", self.place)]


@dataclass(frozen=True)
class Frame:
    """A picture and its camera.

    Attributes:
        entry: the file and entry that describe the frame.
        image: the picture's file.
        pose: (4, 4) float64, camera to world, in OpenGL's convention (-z forward, y up).
        numbers: the intrinsics that the file has, with the names of a transforms.json, for pictures of the size `w`
            by `h`.
        lens: the distortion of the camera's lens.
    """

    entry: Entry
    image: Path
    pose: Tensor
    numbers: Mapping[str, float]
    lens: Lens = field(default_factory=lambda: Lens("pinhole", ()))

    def fits(self, width: int, height: int) -> bool:
        """Return True if a picture of this size can be a resized version of the picture that the file describes."""
        w, h = self._listed_size(width, height)
        wide, high = (width - _ROUNDING) / w, (height - _ROUNDING) / h
        wider, higher = (width + _ROUNDING) / w, (height + _ROUNDING) / h
        return wide <= higher * (1 + _STRETCH) and high <= wider * (1 + _STRETCH)

    def camera(self, width: int, height: int) -> Camera:
        """Compute the undistorted camera of the frame's picture, whose actual size this is.

        Intrinsics are scaled if the file describes a larger or smaller picture.

        Raises:
            InputError: the aspect ratio is not that of the file, there is no focal length, or the distortion is
                extreme.
            ConfigError: the lens distorts, and OpenCV is not installed.
        """
        numbers = self.numbers
        w, h = self._listed_size(width, height)
        if not self.fits(width, height):
            rows = [("image", str(self.image), f"{width} x {height}"), ("listed", f"{w:g} x {h:g}")]
            remedy = (
                "Correct w and h of this entry, or resize the picture without cropping: intrinsics are scaled only "
            )
            remedy += "if the aspect ratio is the same."
            raise self.entry.make_error("the image's size is not what the dataset says", rows, remedy)
        across, down = numbers.get("camera_angle_x"), numbers.get("camera_angle_y")
        fl_x = numbers.get("fl_x") or _compute_focal(w, across) or numbers.get("fl_y") or _compute_focal(h, down)
        if fl_x is None:
            rows = [("expected", "camera_angle_x or fl_x")]
            raise self.entry.make_error("the dataset has no focal length", rows, "Add one of the two to the file.")
        fl_y = numbers.get("fl_y") or _compute_focal(h, down) or fl_x
        cx, cy = numbers.get("cx", w / 2), numbers.get("cy", h / 2)
        shrink_x, shrink_y = width / w, height / h
        focal, center = (fl_x * shrink_x, fl_y * shrink_y), (cx * shrink_x, cy * shrink_y)
        camera = undistort_camera(Camera("pinhole", focal, center, (width, height)), self.lens)
        if camera is None:
            rows = [("model", self.lens.model)]
            rows += [("coefficients", ", ".join(f"{one:g}" for one in self.lens.coefficients))]
            remedy = "Correct the coefficients, or undistort the pictures before, as `colmap image_undistorter` does."
            raise self.entry.make_error("no pixel of a picture is left after undistortion of its lens", rows, remedy)
        return camera

    def _listed_size(self, width: int, height: int) -> tuple[float, float]:
        """Return the width and height of the picture that the intrinsics describe, from the file if it has them."""
        w, h = self.numbers.get("w"), self.numbers.get("h")
        return w or (width * h / height if h else width), h or (height * w / width if w else height)


def warn_of_missing(missing: Sequence[tuple[Entry, Path]], count: int) -> None:
    """Warn about pictures that are missing and left out, if there are any.

    Args:
        missing: the entries whose picture is missing, with its path.
        count: the number of all entries.
    """
    if missing:
        rows = [("file", str(missing[0][0].file)), ("pictures", f"{len(missing)} of {count} are missing")]
        rows += [("image", str(path)) for _, path in missing[:_LISTED]]
        rows += [("", f"and {len(missing) - _LISTED} more")] * (len(missing) > _LISTED)
        warn(refusal("pictures of the dataset are missing, and left out", rows))


def _compute_focal(size: float, angle: float | None) -> float | None:
    return None if angle is None else size / 2 / math.tan(angle / 2)
