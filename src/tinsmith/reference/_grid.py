"""Grids of features at several resolutions, as instant-ngp and tiny-cuda-nn have them, in plain torch."""

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
    """One resolution of a grid.

    Attributes:
        scale: cells a unit of length; a corner is where `x scale + 1/2` is whole.
        resolution: corners a side that `x` in [0, 1] can meet, the last of which is met at 1 only.
        first: row of the table where its slots begin.
        size: how many slots it has.
        is_hashed: whether corners share slots by a hash; else they are counted through, and wrap around.
        factors: what each dim's index is multiplied with, modulo 2^32: a prime, or a stride.
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
    """The levels of a grid encoding, as tiny-cuda-nn lays them out in its table.

    With base b and scale s, level l has

        scale = b s^l - 1        in float32, as there: it decides how many rows a table has
        resolution = ceil(scale) + 1
        size = resolution^n_dims, rounded up to 8; at most 2^log2_hashmap_size (Hash) or b^n_dims (Tiled)

    A level of a "Hash" grid is hashed where its corners outnumber its slots. Corners that cannot be counted in 32 bits
    and are not hashed all share the first slot; only a "Tiled" grid can have those.

    Args:
        n_dims: of the positions, 1 to 7.
        n_levels: how many.
        base_resolution: of the coarsest level.
        per_level_scale: how many times as fine each level is as the one before.
        kind: what is done where corners outnumber slots; a "Dense" grid always has enough.
        log2_hashmap_size: of a "Hash" grid: most slots of a level.

    Returns:
        The levels, coarsest first. The table has `levels[-1].first + levels[-1].size` rows.

    Example:
        >>> [level.size for level in grid_levels(2, n_levels=4, log2_hashmap_size=12)]
        [256, 1024, 4096, 4096]
    """
    levels: list[GridLevel] = []
    first = 0
    for level in range(n_levels):
        scale = _scale(level, base_resolution, per_level_scale)
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


def _scale(level: int, base_resolution: int, per_level_scale: float) -> float:
    """`base_resolution per_level_scale^level - 1`, each step rounded as tiny-cuda-nn's float32 does."""
    exponent = _single(level * _single(math.log2(_single(per_level_scale))))
    return _single(_single(_single(2.0**exponent) * base_resolution) - 1.0)


def _single(number: float) -> float:
    return torch.tensor(number, dtype=torch.float32).item()


def grid(
    x: Tensor,
    table: Tensor,
    levels: Sequence[GridLevel],
    interpolation: Literal["Nearest", "Linear", "Smoothstep"] = "Linear",
) -> Tensor:
    """Features of each level at `x`, interpolated between the corners of the cell it is in.

    On a level with its scale, and u = x scale + 1/2:

        cell = floor(u),  part = u - cell,  or 3 part^2 - 2 part^3 with "Smoothstep"
        y = sum over the cell's corners of  (product over dims of part or 1 - part)  table[slot]

    and with "Nearest" y = table[slot of the cell's lowest corner].

    Args:
        x: (n, dim), in [0, 1]. What is outside finds slots too.
        table: (row, feature), the levels one after the other.
        levels: of `grid_levels`.
        interpolation: between corners. With "Nearest" the gradient in x is 0.

    Returns:
        (n, level feature), a level's features side by side. Differentiable in x and table; of the cell that x is in
        no derivative is taken.

    Example:
        >>> levels = grid_levels(1, n_levels=1, base_resolution=3)
        >>> grid(torch.tensor([[0.25], [0.5]]), torch.arange(8.0)[:, None], levels)
        tensor([[1.0000],
                [1.5000]])
    """
    return torch.cat([_level(x, table, level, interpolation) for level in levels], dim=-1)


def _level(x: Tensor, table: Tensor, level: GridLevel, interpolation: str) -> Tensor:
    u = x * level.scale + 0.5
    cell = u.detach().floor()
    part = u - cell
    if interpolation == "Nearest":
        return table[_slot(cell.long(), level)] + 0 * part.sum(-1, keepdim=True)
    if interpolation == "Smoothstep":
        part = part * part * (3 - 2 * part)
    total = torch.zeros(len(x), table.shape[1], dtype=table.dtype, device=table.device)
    for corner in itertools.product((0, 1), repeat=x.shape[1]):
        bits = torch.tensor(corner, device=x.device)
        weight = torch.where(bits == 1, part, 1 - part).prod(-1, keepdim=True)
        total = total + weight * table[_slot(cell.long() + bits, level)]
    return total


def _slot(corner: Tensor, level: GridLevel) -> Tensor:
    """Rows of the table for corners (n, dim): 32-bit unsigned arithmetic, in 64 bits."""
    terms = [(corner[:, dim] % _WORD) * factor % _WORD for dim, factor in enumerate(level.factors)]
    index = torch.zeros_like(terms[0])
    for term in terms:
        index = index ^ term if level.is_hashed else (index + term) % _WORD
    return level.first + index % level.size
