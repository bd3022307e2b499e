"""Drawing: numbers as colors, and bodies made of points and lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from .._pictures import apply_colormap

_TITLE, _TEXT, _LEADING = 17, 14, 6  # pixels of a caption: sizes of its first line and of the others; margins
_SHARPER = 3  # the factor of supersampling, for smooth edges


def colorize(values: Tensor, low: float, high: float, zoom: int = 1, colors: str = "RdBu_r") -> Tensor:
    """Convert numbers (rows, columns) from `low` to `high` to colors, enlarged: (rows zoom, columns zoom, 3) uint8."""
    # Enlarge numbers, not colors: all frames of a film then have the 256 colors of the map, which a GIF holds exactly.
    image = Image.fromarray(values.detach().cpu().float().numpy())
    image = image.resize((zoom * image.width, zoom * image.height), Image.Resampling.BICUBIC)
    return _pixels(apply_colormap((torch.from_numpy(np.array(image)) - low) / (high - low), colors))


class Canvas:
    """A picture of a part of the plane, y upward. Coordinates and radii are in the plane's units."""

    def __init__(self, width: int, left: float, right: float, low: float, high: float, ground: str = "white") -> None:
        self._scale = _SHARPER * width / (right - left)
        self._left, self._high = left, high
        size = _SHARPER * width, _SHARPER * round(width * (high - low) / (right - left))
        self._image = Image.new("RGB", size, ground)
        self._pen = ImageDraw.Draw(self._image)

    def line(self, points: Iterable[Any], color: str, width: float) -> None:
        """Draw a line through points; `width` is in pixels."""
        self._pen.line([self._place(one) for one in points], color, round(_SHARPER * width), joint="curve")

    def disc(self, center: Any, radius: float, color: str, outline: str | None = None) -> None:
        """Draw a disc."""
        x, y = self._place(center)
        r = radius * self._scale
        self._pen.ellipse((x - r, y - r, x + r, y + r), color, outline, _SHARPER if outline else 0)

    def pixels(self) -> Tensor:
        """Return the picture, (rows, columns, 3) uint8."""
        size = self._image.width // _SHARPER, self._image.height // _SHARPER
        return _pixels(self._image.resize(size, Image.Resampling.LANCZOS))

    def _place(self, point: Any) -> tuple[float, float]:
        x, y = point
        return self._scale * (float(x) - self._left), self._scale * (self._high - float(y))


def add_caption(frame: Tensor, *lines: str) -> Tensor:
    """Add lines of text above a frame (rows, columns, 3) uint8; the first is larger."""
    sizes = (_TITLE, *[_TEXT] * (len(lines) - 1))
    top = sum(_LEADING + size for size in sizes) + _LEADING
    whole = Image.new("RGB", (frame.shape[1], frame.shape[0] + top), "white")
    whole.paste(Image.fromarray(frame.numpy()), (0, top))
    pen, y = ImageDraw.Draw(whole), _LEADING
    for line, size in zip(lines, sizes, strict=True):
        pen.text((_LEADING, y), line, "black", ImageFont.load_default(size))
        y += size + _LEADING
    return _pixels(whole)


def _pixels(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image))


def draw_text(text: str, side: int, height: int) -> Tensor:
    """Draw text in the middle of a picture (side, side) of numbers from 0 to 1, slightly blurred."""
    image = Image.new("L", (side, side))
    ImageDraw.Draw(image).text((side / 2, side / 2), text, 255, ImageFont.load_default(height), anchor="mm")
    return functional.avg_pool2d(torch.from_numpy(np.array(image))[None, None] / 255, 3, 1, 1)[0, 0]
