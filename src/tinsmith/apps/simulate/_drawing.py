"""Drawing: numbers as colors, and bodies made of points and lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional

from .._pictures import apply_colormap, take_pixels

_SHARPER = 3  # the factor of supersampling, for smooth edges


def colorize(values: Tensor, low: float, high: float, zoom: int = 1, colors: str = "RdBu_r") -> Tensor:
    """Convert numbers (rows, columns) from `low` to `high` to colors, enlarged: (rows zoom, columns zoom, 3) uint8."""
    # Enlarge numbers, not colors: all frames of a film then have the 256 colors of the map, which a GIF holds exactly.
    image = Image.fromarray(values.detach().cpu().float().numpy())
    image = image.resize((zoom * image.width, zoom * image.height), Image.Resampling.BICUBIC)
    return take_pixels(apply_colormap((torch.from_numpy(np.array(image)) - low) / (high - low), colors))


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

    def disc(self, center: Any, radius: float, color: str) -> None:
        """Draw a disc."""
        x, y = self._place(center)
        r = radius * self._scale
        self._pen.ellipse((x - r, y - r, x + r, y + r), color)

    def pixels(self) -> Tensor:
        """Return the picture, (rows, columns, 3) uint8."""
        size = self._image.width // _SHARPER, self._image.height // _SHARPER
        return take_pixels(self._image.resize(size, Image.Resampling.LANCZOS))

    def _place(self, point: Any) -> tuple[float, float]:
        x, y = point
        return self._scale * (float(x) - self._left), self._scale * (self._high - float(y))


def draw_text(text: str, side: int, height: int) -> Tensor:
    """Draw text in the middle of a picture (side, side) of numbers from 0 to 1, slightly blurred."""
    image = Image.new("L", (side, side))
    ImageDraw.Draw(image).text((side / 2, side / 2), text, 255, ImageFont.load_default(height), anchor="mm")
    return functional.avg_pool2d(torch.from_numpy(np.array(image))[None, None] / 255, 3, 1, 1)[0, 0]
