"""Photographs and other input images: reading them, turning them upright, shrinking them, and identifying them by a
digest; and the base class of what learns one.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from .._errors import InputError, refusal
from .._untrusted import READABLE_PICTURE, open_picture
from ._files import require_image
from ._film import as_pixels, flat_psnr, psnr_of_pixels
from ._outcome import Reached
from ._training import Learner, Training

_SIXTEEN_BITS = 65535
_PART = 1 << 20
"""The number of pixels that are converted at a time, which bounds the memory of intermediate results."""


@dataclass(frozen=True)
class Photo:
    """A photograph: its file's name, `pixels` (h, w, 3) uint8, and a digest of the pixels."""

    name: str
    pixels: Tensor
    digest: str

    @property
    def height(self) -> int:
        return self.pixels.shape[0]

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    def identity(self) -> dict[str, object]:
        """Return the entries of a checkpoint that identify the photograph."""
        return {"photograph": self.name, "size": f"{self.width} x {self.height}", "pixels": self.digest}


def load_photo(path: Path | None, size: int) -> Photo:
    """Read an image and shrink it so that no side exceeds `size`. Without a path, read the photograph that matplotlib
    ships.

    Transparent pixels are blended with white. Raises InputError if the file is missing or not an image.
    """
    path = path or _default_photo()
    image = _read(path)
    image.thumbnail((size, size), Image.Resampling.LANCZOS)
    pixels = np.array(image, dtype=np.uint8)
    digest = hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()
    return Photo(path.name, torch.from_numpy(pixels), digest)


def _default_photo() -> Path:
    # Slow to load, and only needed here and for the curve.
    import matplotlib as mpl

    path = Path(mpl.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    if not path.is_file():
        words = "matplotlib was installed without its sample photograph"
        raise InputError(refusal(words, [("file", str(path))], "Name an image of your own."))
    return path


def _read(path: Path) -> Image.Image:
    require_image(path)
    return _on_white(open_image(path))


def open_image(path: Path, named_by: Iterable[tuple[str, ...]] = ()) -> Image.Image:
    """Read an image and turn it upright. The mode stays, except that 16-bit gray is reduced to 8 bits.

    Args:
        path: an existing file.
        named_by: rows for an error message that say which file named this one.

    Raises:
        InputError: it is not an image, or has more than 16 bits a channel.
    """
    with open_picture(path, lambda reason, remedy: _unreadable(path, reason, named_by, remedy)) as opened:
        # Pillow would copy an upright picture, so turn only the others.
        is_turned = opened.getexif().get(ExifTags.Base.Orientation, 1) != 1
        opened.load()
        image = ImageOps.exif_transpose(opened) if is_turned else opened
    if image.mode == "F":
        raise _unreadable(path, "its numbers are floating point (mode F)", named_by)
    return _reduce_to_8_bits(image, path, named_by) if image.mode.partition(";")[0] == "I" else image


def _reduce_to_8_bits(image: Image.Image, path: Path, named_by: Iterable[tuple[str, ...]]) -> Image.Image:
    """Convert an image of 16 bits a pixel to 8 bits. Pillow itself would clip the values at 255."""
    values = np.asarray(image)
    if values.min() < 0 or values.max() > _SIXTEEN_BITS:
        raise _unreadable(path, f"it has more than 16 bits a pixel (mode {image.mode})", named_by)
    reduced = np.empty(values.shape, np.uint8)
    # Convert parts: at once, the intermediate results in float64 would take eight times the picture's memory.
    given, made = values.reshape(-1), reduced.reshape(-1)
    for first in range(0, given.size, _PART):
        part = slice(first, first + _PART)
        made[part] = np.round(given[part] * (255 / _SIXTEEN_BITS))
    return Image.fromarray(reduced)


def _unreadable(
    path: Path, reason: str, named_by: Iterable[tuple[str, ...]], remedy: str = READABLE_PICTURE
) -> InputError:
    rows = [*named_by, ("image" if named_by else "file", str(path)), ("because", reason)]
    return InputError(refusal("the image cannot be read", rows, remedy))


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    blended = Image.new("RGB", image.size)
    # Blend strips: at once, three copies of a large picture with four channels would be in memory.
    rows = max(1, _PART // image.width)
    for top in range(0, image.height, rows):
        layer = image.crop((0, top, image.width, min(top + rows, image.height))).convert("RGBA")
        blended.paste(Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB"), (0, top))
    return blended


class PhotoLearner(Learner[Tensor, Reached]):
    """A model that learns a photograph. Its evaluation is its picture, (rows, columns, 3) uint8."""

    photo: Photo

    @abstractmethod
    def image(self) -> Tensor:
        """Render the model's current picture, (rows, columns, 3), floats from 0 to 1."""

    @torch.no_grad()
    def evaluate(self, training: Training[Any]) -> Tensor:
        return as_pixels(self.image())

    def psnr(self, evaluation: Tensor) -> float:
        """Return the PSNR in dB between a picture, uint8 (rows, columns, 3), and the photograph."""
        return psnr_of_pixels(evaluation, self.photo.pixels)

    def summarize(self, evaluation: Tensor, run: Mapping[str, Any]) -> Reached:
        return Reached(**run, psnr=self.psnr(evaluation), flat=flat_psnr(self.photo.pixels))

    def describe(self, training: Training[Any], evaluation: Tensor) -> dict[str, object]:
        """Return the entries of the summary file that all learners of a photograph share."""
        return {
            "photograph": self.photo.name,
            "width": self.photo.width,
            "height": self.photo.height,
            "psnr_db": self.psnr(evaluation),
            "step": training.step,
            "steps": training.steps,
            "seconds": training.seconds,
        }
