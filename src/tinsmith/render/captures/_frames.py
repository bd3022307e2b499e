"""Frames: a picture by its file, the camera that took it, and which entry of which file describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from ..._errors import InputError, refusal
from ..._user_warnings import warn
from ._lenses import Camera, Lens, undistort_camera

_ROUNDING = 1.0  # pixels: a picture that was made smaller has sides that were rounded, by any rule
_STRETCH = 0.02  # how much more it may be shrunk along one side than along the other
_LISTED = 3  # missing pictures that a warning names


@dataclass(frozen=True)
class Entry:
    """A frame of a file, for those who refuse it: which file, and where in it."""

    file: Path
    place: str

    def make_error(self, headline: str, rows: list[tuple[str, ...]], remedy: str = "") -> InputError:
        """What is wrong with it, as an error that names file and entry."""
        return InputError(refusal(headline, [*self.rows, *rows], remedy))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """File and entry, as rows of a refusal."""
        return [("file", str(self.file)), ("entry", self.place)]


@dataclass(frozen=True)
class Frame:
    """A picture and its camera.

    Attributes:
        entry: the file and entry that describe it.
        image: its file.
        pose: (4, 4) float64, from camera to world, in OpenGL's convention (-z forward, y up).
        numbers: intrinsics as far as the file has them, in the names of a transforms.json, for pictures of the size `w`
            and `h`.
        lens: its distortion.
    """

    entry: Entry
    image: Path
    pose: Tensor
    numbers: Mapping[str, float]
    lens: Lens = field(default_factory=lambda: Lens("pinhole", ()))

    def fits(self, width: int, height: int) -> bool:
        """Return whether a picture of this size may be that of the file, made smaller or larger."""
        w, h = self._listed_size(width, height)
        wide, high = (width - _ROUNDING) / w, (height - _ROUNDING) / h
        wider, higher = (width + _ROUNDING) / w, (height + _ROUNDING) / h
        return wide <= higher * (1 + _STRETCH) and high <= wider * (1 + _STRETCH)

    def camera(self, width: int, height: int) -> Camera:
        """Return the camera, without distortion, of its picture, which has this size.

        Intrinsics are scaled where the file describes larger or smaller pictures.

        Raises:
            InputError: the file describes a picture of another shape, or no focal length, or a lens out of all measure.
            ConfigError: the lens distorts, and OpenCV is not installed.
        """
        numbers = self.numbers
        w, h = self._listed_size(width, height)
        if not self.fits(width, height):
            rows = [("image", str(self.image), f"{width} x {height}"), ("listed", f"{w:g} x {h:g}")]
            remedy = "Its intrinsics are scaled where it was made smaller; this one has another shape."
            raise self.entry.make_error("the image's size is not what the dataset says", rows, remedy)
        across, down = numbers.get("camera_angle_x"), numbers.get("camera_angle_y")
        fl_x = numbers.get("fl_x") or _focal(w, across) or numbers.get("fl_y") or _focal(h, down)
        if fl_x is None:
            rows = [("expected", "camera_angle_x or fl_x")]
            raise self.entry.make_error("the dataset says no focal length", rows, "Add one of the two to the file.")
        fl_y = numbers.get("fl_y") or _focal(h, down) or fl_x
        cx, cy = numbers.get("cx", w / 2), numbers.get("cy", h / 2)
        shrink_x, shrink_y = width / w, height / h
        focal, center = (fl_x * shrink_x, fl_y * shrink_y), (cx * shrink_x, cy * shrink_y)
        camera = undistort_camera(Camera("pinhole", focal, center, (width, height)), self.lens)
        if camera is None:
            rows = [("model", self.lens.model)]
            rows += [("coefficients", ", ".join(f"{one:g}" for one in self.lens.coefficients))]
            raise self.entry.make_error("nothing of a picture is left without the distortion of its lens", rows)
        return camera

    def _listed_size(self, width: int, height: int) -> tuple[float, float]:
        """The size of the picture that the intrinsics are for."""
        w, h = self.numbers.get("w"), self.numbers.get("h")
        return w or (width * h / height if h else width), h or (height * w / width if w else height)


def warn_of_missing(missing: Sequence[tuple[Entry, Path]], count: int) -> None:
    """Warn that pictures are left out.

    Args:
        missing: entries whose picture is not there, with its path.
        count: of all entries.
    """
    if missing:
        rows = [("file", str(missing[0][0].file)), ("pictures", f"{len(missing)} of {count} are missing")]
        rows += [("image", str(path)) for _, path in missing[:_LISTED]]
        rows += [("", f"and {len(missing) - _LISTED} more")] * (len(missing) > _LISTED)
        warn(refusal("pictures of the dataset are missing, and left out", rows))


def _focal(size: float, angle: float | None) -> float | None:
    return None if angle is None else size / 2 / math.tan(angle / 2)
