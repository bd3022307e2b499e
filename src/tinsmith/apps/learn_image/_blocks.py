"""Blocks: the parts of the photograph, one for each network.

If the grid does not divide the photograph's sides evenly, blocks differ by a row or a column of pixels.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from ..._errors import ConfigError, refusal
from .._photo import Photo

_SIDE = 32  # pixels of a block's side, for the number of blocks that an error suggests


class Blocks:
    """The pixels of each block of a photograph: positions and colors. Blocks are counted row by row.

    Positions are the pixels' centers, x and y from 0 to 1 across the block.

    Args:
        photo: the photograph.
        grid_shape: rows and columns of blocks; (1, 1) for a single network.
        device: the device of the tensors.
        every: take every n-th row and column of a block.

    Attributes:
        pixels: (rows, columns, 3) uint8, the pixels that are taken.
        rows, columns: the boundaries of blocks among these pixels: one number more than there are blocks.
        positions: [block, pixel, 2]; smaller blocks are padded by repeating their last pixel.
    """

    def __init__(self, photo: Photo, grid_shape: tuple[int, int], device: str, every: int = 1) -> None:
        self.grid_shape = grid_shape
        down = [_places(size, every) for size in _sizes(_edges(photo.height, grid_shape[0]))]
        across = [_places(size, every) for size in _sizes(_edges(photo.width, grid_shape[1]))]
        self.rows, self.columns = _ends(down), _ends(across)
        self.pixels = photo.pixels[_concatenate_places(down)][:, _concatenate_places(across)]
        self._shape = tuple(self.pixels.shape[:2])
        self.colors = self.pixels.to(device).float().div(255).flatten(0, 1)
        index, positions, counts = _cut(down, across)
        self._index, self._counts = index.to(device), counts
        self.positions = positions.to(device)
        self._targets = self.colors[self._index]

    def draw_pixels(self, count: int, draw: torch.Generator, blocks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Draw pixels at random in each block; return positions [block, count, 2] and colors [block, count, 3].

        Args:
            count: the number of pixels of each block.
            draw: a generator on the CPU.
            blocks: the numbers of the blocks to draw from; None for all.
        """
        chosen = torch.arange(len(self._counts)) if blocks is None else blocks
        sizes = self._counts[chosen, None]
        pixels = (torch.rand(len(chosen), count, generator=draw, dtype=torch.float64) * sizes).long()
        # One flat index: five times as fast on the CPU as separate indices of blocks and pixels.
        at = (chosen[:, None] * self.positions.shape[1] + pixels).flatten().to(self.positions.device)
        positions, colors = (table.flatten(0, 1).index_select(0, at) for table in (self.positions, self._targets))
        return positions.view(len(chosen), count, 2), colors.view(len(chosen), count, 3)

    def assemble_image(self, values: Tensor) -> Tensor:
        """Assemble values [block, pixel, channel] to an image (rows, columns, channel)."""
        image = values.new_empty(self._shape[0] * self._shape[1], values.shape[-1])
        image[self._index.flatten()] = values.flatten(0, 1)
        return image.view(*self._shape, -1)

    def mean(self, image: Tensor) -> Tensor:
        """Return the mean of an image (rows, columns) over each block, [block]."""
        inside = torch.arange(self._index.shape[1], device=image.device) < self._counts.to(image.device)[:, None]
        return (image.flatten()[self._index] * inside).sum(1) / inside.sum(1)


def require_room(photo: Photo, grid_shape: tuple[int, int]) -> None:
    """Raise ConfigError if there are more rows or columns of blocks than of pixels."""
    if grid_shape[0] > photo.height or grid_shape[1] > photo.width:
        rows = [
            ("blocks", "{} rows, {} columns".format(*grid_shape)),
            ("pixels", f"{photo.height} rows, {photo.width} columns"),
        ]
        remedy = f"Take fewer blocks, as with --blocks {-(-photo.height // _SIDE)}x{-(-photo.width // _SIDE)}."
        raise ConfigError(refusal("there are more blocks than pixels", rows, remedy))


def _edges(pixels: int, blocks: int) -> list[int]:
    return [round(number * pixels / blocks) for number in range(blocks + 1)]


def _sizes(edges: list[int]) -> list[int]:
    return [end - begin for begin, end in itertools.pairwise(edges)]


class _Places(NamedTuple):
    """The rows or columns that are taken of a block, counted from its first, and how many the block has."""

    places: Tensor
    size: int


def _places(size: int, every: int) -> _Places:
    """Return every `every`-th row or column of a block, from the middle of the first `every` on: at least one."""
    return _Places(torch.arange(min((every - 1) // 2, size - 1), size, every), size)


def _ends(parts: list[_Places]) -> list[int]:
    return [0, *itertools.accumulate(len(part.places) for part in parts)]


def _concatenate_places(parts: list[_Places]) -> Tensor:
    begins = itertools.accumulate((part.size for part in parts), initial=0)
    return torch.cat([begin + part.places for begin, part in zip(begins, parts, strict=False)])


def _cut(down: list[_Places], across: list[_Places]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the index of each block's pixels in the flat image [block, pixel], their positions [block, pixel, 2], and
    their number [block].
    """
    rows, columns = _ends(down), _ends(across)
    most = max(len(part.places) for part in down) * max(len(part.places) for part in across)
    index, positions, counts = [], [], []
    for top, (ys, high) in zip(rows, down, strict=False):
        for left, (xs, wide) in zip(columns, across, strict=False):
            pixel = torch.arange(most).clamp(max=len(ys) * len(xs) - 1)
            row, column = pixel // len(xs), pixel % len(xs)
            index.append((top + row) * columns[-1] + left + column)
            positions.append(torch.stack([(xs[column] + 0.5) / wide, (ys[row] + 0.5) / high], -1))
            counts.append(len(ys) * len(xs))
    return torch.stack(index), torch.stack(positions).float(), torch.tensor(counts)
