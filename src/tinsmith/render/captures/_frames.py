"""Frames: a picture by its file, the camera that took it, and which entry of which file tells of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..._errors import InputError, refusal


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
        numbers: intrinsics as far as the file has them, in the names of a transforms.json.
    """

    entry: Entry
    image: Path
    pose: Tensor
    numbers: Mapping[str, float]

    def intrinsics(self, width: int, height: int) -> Tensor:
        """(3, 3) float64, in pixels of its picture, which has this size.

        Raises:
            InputError: the file tells of another size, or of no focal length.
        """
        numbers = self.numbers
        for name, size in (("w", width), ("h", height)):
            if numbers.get(name, size) != size:
                rows = [("image", str(self.image)), (name, f"{numbers[name]:g}", f"the image has {size}")]
                raise self.entry.make_error("the image's size is not what the dataset says", rows)
        across, down = numbers.get("camera_angle_x"), numbers.get("camera_angle_y")
        fl_x = numbers.get("fl_x") or _focal(width, across) or numbers.get("fl_y") or _focal(height, down)
        if fl_x is None:
            rows = [("expected", "camera_angle_x or fl_x")]
            raise self.entry.make_error("the dataset says no focal length", rows, "Add one of the two to the file.")
        fl_y = numbers.get("fl_y") or _focal(height, down) or fl_x
        cx, cy = numbers.get("cx", width / 2), numbers.get("cy", height / 2)
        return torch.tensor([[fl_x, 0, cx], [0, fl_y, cy], [0, 0, 1]], dtype=torch.float64)


def _focal(size: int, angle: float | None) -> float | None:
    return None if angle is None else size / 2 / math.tan(angle / 2)
