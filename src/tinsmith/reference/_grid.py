"""The reference of grids of features at several resolutions, as in instant-ngp and tiny-cuda-nn, in plain torch."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

_PRIMES = (1, 2654435761, 805459861, 3674653429, 2097192037, 1434869437, 2165219737)
_WORD = 2**32


@dataclasses.dataclass(frozen=True)
class GridLevel:
    """One level of a grid, with its resolution and its place in the table of features.

    Attributes:
        scale: cells per unit of length; a corner is where `x scale + 1/2` is an integer.
        resolution: corners along each axis that belong to cells with `x` in [0, 1]; the last one only at 1.
        first: the row of the table where the level's slots begin.
        size: the number of slots.
        is_hashed: True if corners share slots by a hash; else they are numbered, and wrap around.
        factors: the factor of each dim's index, modulo 2^32: a prime, or a stride.
    """

    scale: float
    resolution: int
    first: int
    size: int
    is_hashed: bool
    factors: tuple[int, ...]


def grid_levels(
    n_dims: int,
    *,
    n_levels: int = 16,
    base_resolution: int = 16,
    per_level_scale: float = 2.0,
    kind: Literal["Hash", "Dense", "Tiled"] = "Hash",
    log2_hashmap_size: int = 19,
) -> tuple[GridLevel, ...]:
    """Compute the levels of a grid encoding with the layout of tiny-cuda-nn's table.

    With base b and scale s, level l has

        scale = b s^l - 1        in float32, as in tiny-cuda-nn, since it determines the size of the table
        resolution = ceil(scale) + 1
        size = resolution^n_dims, rounded up to 8; at most 2^log2_hashmap_size (Hash) or b^n_dims (Tiled)

    A level of a "Hash" grid is hashed if it has more corners than slots. Corners that cannot be numbered in 32 bits
    and are not hashed all share the first slot; only a "Tiled" grid can have those.

    Args:
        n_dims: number of dims of the positions, 1 to 7.
        n_levels: number of levels.
        base_resolution: resolution of the coarsest level.
        per_level_scale: the ratio of the resolutions of two successive levels.
        kind: how corners share slots: "Hash" hashes them, "Tiled" wraps around, "Dense" has a slot for each.
        log2_hashmap_size: for a "Hash" grid, the logarithm of the largest number of slots of a level.

    Returns:
        The levels, coarsest first. The table has `levels[-1].first + levels[-1].size` rows.

    Example:
        >>> [level.size for level in grid_levels(2, n_levels=4, log2_hashmap_size=12)]
        [256, 1024, 4096, 4096]
    """
    levels: list[GridLevel] = []
    first = 0
    for level in range(n_levels):
        scale = _compute_scale(level, base_resolution, per_level_scale)
        resolution = math.ceil(scale) + 1
        corners = resolution**n_dims
        size = -(-min(corners, _WORD // 2 - 1) // 8) * 8
        if kind == "Hash":
            size = min(size, 2**log2_hashmap_size)
        elif kind == "Tiled":
            size = min(size, base_resolution**n_dims)
        is_hashed = kind == "Hash" and size < corners
        strides = tuple(resolution**dim if corners < _WORD else 0 for dim in range(n_dims))
        factors = _PRIMES[:n_dims] if is_hashed else strides
        levels.append(GridLevel(scale, resolution, first, size, is_hashed, factors))
        first += size
    return tuple(levels)


def _compute_scale(level: int, base_resolution: int, per_level_scale: float) -> float:
    """Compute `base_resolution per_level_scale^level - 1`, with each operation in float32 as in tiny-cuda-nn."""
    exponent = _round_to_single(level * _round_to_single(math.log2(_round_to_single(per_level_scale))))
    return _round_to_single(_round_to_single(_round_to_single(2.0**exponent) * base_resolution) - 1.0)


def _round_to_single(number: float) -> float:
    return torch.tensor(number, dtype=torch.float32).item()


def grid(
    x: Tensor,
    table: Tensor,
    levels: Sequence[GridLevel],
    interpolation: Literal["Nearest", "Linear", "Smoothstep"] = "Linear",
) -> Tensor:
    """Interpolate the features of each level at positions, between the corners of the cell that contains the position.

    For each level, with u = x scale + 1/2:

        cell = floor(u),  part = u - cell,  or 3 part^2 - 2 part^3 with "Smoothstep"
        y = sum over the cell's corners of  (product over dims of part or 1 - part)  table[slot]

    and with "Nearest" y = table[slot of the cell's lowest corner].

    Args:
        x: (n, dim), in [0, 1]; positions outside have slots too.
        table: (row, feature), the levels one after the other.
        levels: the levels, from `grid_levels`.
        interpolation: the interpolation between corners. With "Nearest" the gradient in x is 0.

    Returns:
        (n, level feature), the features of a level next to each other. Differentiable in x and table; which cell x is
        in is not differentiated.

    Example:
        >>> levels = grid_levels(1, n_levels=1, base_resolution=3)
        >>> grid(torch.tensor([[0.25], [0.5]]), torch.arange(8.0)[:, None], levels)
        tensor([[1.0000],
                [1.5000]])
    """
    return torch.cat([_interpolate_level(x, table, level, interpolation) for level in levels], dim=-1)


def _interpolate_level(x: Tensor, table: Tensor, level: GridLevel, interpolation: str) -> Tensor:
    u = x * level.scale + 0.5
    cell = u.detach().floor()
    part = u - cell
    if interpolation == "Nearest":
        return table[_find_rows(cell.long(), level)] + 0 * part.sum(-1, keepdim=True)
    if interpolation == "Smoothstep":
        part = part * part * (3 - 2 * part)
    total = torch.zeros(len(x), table.shape[1], dtype=table.dtype, device=table.device)
    for corner in itertools.product((0, 1), repeat=x.shape[1]):
        bits = torch.tensor(corner, device=x.device)
        weight = torch.where(bits == 1, part, 1 - part).prod(-1, keepdim=True)
        total = total + weight * table[_find_rows(cell.long() + bits, level)]
    return total


def _find_rows(corner: Tensor, level: GridLevel) -> Tensor:
    """Compute the row of the table for each corner, (n, dim) to (n), by 32-bit unsigned arithmetic in int64."""
    terms = [(corner[:, dim] % _WORD) * factor % _WORD for dim, factor in enumerate(level.factors)]
    index = torch.zeros_like(terms[0])
    for term in terms:
        index = index ^ term if level.is_hashed else (index + term) % _WORD
    return level.first + index % level.size
