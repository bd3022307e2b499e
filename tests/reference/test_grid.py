"""The grid's twin against loops over numbers, and against sizes that tiny-cuda-nn is known to have."""

from __future__ import annotations

import math

import pytest
import torch

from tinsmith import reference

PRIMES = (1, 2654435761, 805459861, 3674653429, 2097192037, 1434869437, 2165219737)


def slot_by_hand(corner: list[int], resolution: int, size: int, kind: str) -> int:
    """Compute like `grid_index` of tiny-cuda-nn's common_device.h, in unsigned 32-bit numbers."""
    word = 1 << 32
    index, stride = 0, 1
    if resolution ** len(corner) < word:
        for number in corner:
            index = (index + (number % word) * stride) % word
            stride = stride * resolution % word
    else:
        stride = word - 1
    if kind == "Hash" and size < stride:
        index = 0
        for number, prime in zip(corner, PRIMES, strict=False):
            index ^= (number % word) * prime % word
    return index % size


def features_by_hand(x: list[float], table: list[list[float]], level, kind: str, interpolation: str) -> list[float]:
    """Compute one point on one level, like `kernel_grid` of tiny-cuda-nn's grid.h."""
    pos = [v * level.scale + 0.5 for v in x]
    cell = [math.floor(p) for p in pos]
    part = [p - c for p, c in zip(pos, cell, strict=True)]
    if interpolation == "Nearest":
        return table[level.first + slot_by_hand(cell, level.resolution, level.size, kind)]
    if interpolation == "Smoothstep":
        part = [p * p * (3 - 2 * p) for p in part]
    result = [0.0] * len(table[0])
    for corner in range(2 ** len(x)):
        weight, place = 1.0, []
        for dim in range(len(x)):
            upper = corner >> dim & 1
            weight *= part[dim] if upper else 1 - part[dim]
            place.append(cell[dim] + upper)
        row = table[level.first + slot_by_hand(place, level.resolution, level.size, kind)]
        result = [r + weight * value for r, value in zip(result, row, strict=True)]
    return result


@pytest.mark.parametrize("interpolation", ["Nearest", "Linear", "Smoothstep"])
@pytest.mark.parametrize("kind", ["Hash", "Dense", "Tiled"])
@pytest.mark.parametrize("n_dims", [1, 2, 3, 5, 7])
def test_the_grid_agrees_with_plain_loops(n_dims, kind, interpolation):
    options = {"n_levels": 3, "base_resolution": 3 if n_dims < 5 else 2, "per_level_scale": 1.5}
    levels = reference.grid_levels(n_dims, **options, kind=kind, log2_hashmap_size=6)
    table = torch.randn(levels[-1].first + levels[-1].size, 2, dtype=torch.float64)
    x = torch.rand(5, n_dims, dtype=torch.float64)
    x[1], x[2], x[3] = 0.0, 1.0, x[3] * 6 - 3  # the borders, and what is outside
    y = reference.grid(x, table, levels, interpolation)
    rows = table.tolist()
    for i, point in enumerate(x.tolist()):
        expected = [v for level in levels for v in features_by_hand(point, rows, level, kind, interpolation)]
        assert y[i].tolist() == pytest.approx(expected, abs=1e-12)


def test_levels_that_hash_and_levels_that_do_not():
    levels = reference.grid_levels(3, n_levels=4, base_resolution=8, log2_hashmap_size=12)
    assert [level.is_hashed for level in levels] == [False, False, True, True]
    assert [level.size for level in levels] == [512, 4096, 4096, 4096]
    assert [level.first for level in levels] == [0, 512, 4608, 8704]
    assert [level.resolution for level in levels] == [8, 16, 32, 64]


def test_the_table_of_instant_ngp_has_its_known_size():
    """16 levels of 2^19 slots at most, from 16 to 2048: the 12,196,240 parameters that public checkpoints have."""
    scale = math.exp(math.log(2048 / 16) / 15)
    levels = reference.grid_levels(3, n_levels=16, base_resolution=16, per_level_scale=scale, log2_hashmap_size=19)
    assert 2 * (levels[-1].first + levels[-1].size) == 12_196_240


def test_sizes_are_rounded_up_to_eight():
    (level,) = reference.grid_levels(2, n_levels=1, base_resolution=5, kind="Dense")
    assert (level.resolution, level.size) == (5, 32)


def test_a_tiled_level_has_the_base_s_slots():
    levels = reference.grid_levels(2, n_levels=3, base_resolution=4, kind="Tiled")
    assert [level.size for level in levels] == [16, 16, 16]


def test_a_tiled_level_too_fine_to_count_has_one_slot():
    levels = reference.grid_levels(3, n_levels=8, base_resolution=16, kind="Tiled")
    assert levels[6].factors == (1, 1024, 1024**2)
    assert levels[7].factors == (0, 0, 0)  # 2048^3 corners are more than 32 bits count


def test_a_scale_is_rounded_as_in_float32():
    """1.5^4 * 16 is 81 exactly; in float32, by way of logarithms, it may not be, and that decides the resolution."""
    level = reference.grid_levels(2, n_levels=5, base_resolution=16, per_level_scale=1.5)[4]
    assert level.scale == torch.tensor(level.scale, dtype=torch.float32).item()
    assert level.scale == pytest.approx(80, rel=1e-6)


def test_the_gradient_in_the_positions_is_that_of_differences():
    levels = reference.grid_levels(2, n_levels=2, base_resolution=3, log2_hashmap_size=4)
    table = torch.randn(levels[-1].first + levels[-1].size, 2, dtype=torch.float64, requires_grad=True)
    x = torch.rand(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, t: reference.grid(x, t, levels, "Smoothstep"), (x, table))
