"""The kernels of marching: what is skipped changes nothing, to the bit; and nobody writes where another does."""

from __future__ import annotations

import functools
import math

import pytest
import torch

import tinsmith as ts
from support.findings import sanitize_call
from tinsmith import kernels
from tinsmith.render import OccupancyGrid

READS = "origins[n, 3], directions[n, 3], aabb[6], bits[l, x, y, z]: i64, offsets[n], cells[3]: i32, ranges[n, 2]"
NOWHERE = torch.zeros(0, dtype=torch.int32)
DTYPES = {"f32": torch.float32, "f64": torch.float64}


@functools.cache
def built(lang, fp, skips):
    march = kernels.march(lang, fp=fp, skips=skips)
    return (
        ts.op(f"{READS}, begin[0]: i32 -> counts[n]: i32, runs[n, {kernels.RUNS}, 2]: i32, end[0]: i32")(march.count),
        ts.op(f"{READS}, runs[n, _, 2]: i32, rays[n, 2]: i32 -> ray_index[s]: i32, t[s], steps[s]", races="allow")(
            march.fill
        ),
    )


def marched(ops, given, numbers, most):
    count, fill = ops
    counts, runs, _ = count(*given, NOWHERE, *numbers, most)
    ends = counts.cumsum(0)
    rays = torch.stack([ends - counts, counts], 1).int()
    return counts, *fill(*given, runs, rays, *numbers, s=int(ends[-1]))


def a_scene(seed, fp):
    """Draw a grid, rays and numbers of all kinds: boxes anywhere, odd resolutions, rays along cell faces."""
    draw = torch.Generator().manual_seed(seed)
    pick = lambda *choices: choices[int(torch.randint(len(choices), (), generator=draw))]  # noqa: E731
    rand, randn = functools.partial(torch.rand, generator=draw), functools.partial(torch.randn, generator=draw)
    resolution = pick((4, 8, 16), (13, 1, 6), (32, 32, 32), (5, 9, 2))
    low = randn(3)
    grid = OccupancyGrid([*low.tolist(), *(low + 0.3 + 2 * rand(3)).tolist()], resolution, pick(1, 1, 2, 4))
    part = pick(0.02, 0.3, 0.7, 0.98)
    lumps = (rand(1, grid.levels, 3, 3, 3) < part).float()
    lumpy = torch.nn.functional.interpolate(lumps, grid.resolution)[0].bool()
    grid.occupied = pick(lumpy, rand(grid.levels, *grid.resolution) < part)

    count, extent = 200, grid.aabb[3:] - grid.aabb[:3]
    middle = (grid.aabb[:3] + grid.aabb[3:]) / 2
    origins = middle + pick(0.3, 1.0, 10.0) * randn(count, 3)
    directions = middle + extent * 2 ** (grid.levels - 1) * (rand(count, 3) - 0.5) * 1.2 - origins
    directions = torch.where(rand(count, 3) < pick(0.0, 0.3), 0.0, directions * pick(0.1, 1.0, 5.0))
    if seed % 4 == 0:
        origins = grid.aabb[:3] + extent / grid.cells * torch.randint(-3, 40, (count, 3), generator=draw)
        directions = torch.randint(-2, 3, (count, 3), generator=draw) + pick(0.0, 1e-6) * randn(count, 3)
    offsets = pick(rand(count), torch.full((count,), 0.5), torch.zeros(count))
    cone = pick(0.0, 0.0, 0.004, 0.5)
    step = pick(0.005, 0.01, 0.02, 0.5) / directions.norm(dim=-1).mean().item()
    ranges = torch.tensor([pick(0.0, 0.3, -1.0), pick(math.inf, 2.0, 0.7)]).expand(count, 2)
    most = pick(1024, 7, 100_000)
    numbers = (step, cone, math.log1p(cone), step * pick(math.inf, 1.0, 1.5, 20.0))
    floats = (tensor.to(DTYPES[fp]) for tensor in (origins, directions, grid.aabb, offsets, ranges.contiguous()))
    origins, directions, box, offsets, ranges = floats
    return (origins, directions, box, grid.bits, offsets, grid.cells, ranges), numbers, most


def assert_skipping_changes_nothing(lang, fp, seeds):
    total = 0
    for seed in seeds:
        scene = a_scene(seed, fp)
        skipped, looked_at = (marched(built(lang, fp, skips), *scene) for skips in (True, False))
        for name, ours, theirs in zip(("counts", "ray_index", "t", "steps"), skipped, looked_at, strict=True):
            assert torch.equal(ours, theirs), f"{name} of scene {seed}"
        total += len(skipped[2])
    assert total > 500 * len(seeds)


@pytest.mark.costly
def test_skipping_changes_nothing(lang):
    assert_skipping_changes_nothing(lang, "f32", range(12))


@pytest.mark.costly
@pytest.mark.parametrize("fp", DTYPES)
def test_skipping_changes_nothing_in_many_scenes(lang, fp):
    assert_skipping_changes_nothing(lang, fp, range(12, 150))


def test_rounds_of_a_few_samples_are_the_samples_of_one_pass(lang):
    """To the bit, whatever a round takes of a ray."""
    whole = kernels.march(lang, fp="f32", resumes=True)
    ends = "counts[n]: i32, runs[n, 8, 2]: i32, end[n]: i32"
    count = ts.op(f"{READS}, begin[n]: i32 -> {ends}")(whole.count)
    for seed in (1, 3, 4, 9):
        given, numbers, _ = a_scene(seed, "f32")
        fill = built(lang, "f32", True)[1]
        n = len(given[0])
        counted, ray_index, t, steps = marched(built(lang, "f32", True), (given), numbers, 100_000)
        begin, parts = torch.zeros(n, dtype=torch.int32), []
        for most in (1, 1, 3, 2, 40, 100_000):
            counts, runs, begin = count(*given, begin, *numbers, most)
            ends_ = counts.cumsum(0)
            rays = torch.stack([ends_ - counts, counts], 1).int()
            parts.append(fill(*given, runs, rays, *numbers, s=int(ends_[-1])))
            assert (counts <= most).all()
        rows = torch.cat([part[0] for part in parts])
        order = torch.sort(rows, stable=True).indices
        assert torch.equal(rows[order], ray_index) and counted.sum() == len(rows)
        assert torch.equal(torch.cat([part[1] for part in parts])[order], t)
        assert torch.equal(torch.cat([part[2] for part in parts])[order], steps)


def test_a_second_pass_with_other_counts_stays_in_its_range(lang):
    """Compilers may round differently in the two passes: fewer samples than were counted, or more."""
    given, numbers, most = a_scene(1, "f32")
    count, fill = built(lang, "f32", True)
    counts, runs, _ = count(*given, NOWHERE, *numbers, most)
    wrong = (counts + torch.randint(-2, 3, counts.shape)).clamp(min=0).int()
    ends = wrong.cumsum(0)
    rays = torch.stack([ends - wrong, wrong], 1).int()
    ray_index, t, steps = fill(*given, runs, rays, *numbers, s=int(ends[-1]))
    assert torch.equal(ray_index, torch.repeat_interleave(torch.arange(len(wrong)), wrong).int())
    for (start, size), filled in zip(rays.tolist(), counts.tolist(), strict=True):
        assert (steps[start : start + min(size, filled)] > 0).all()
        assert (t[start : start + size].diff() >= 0).all()


def test_threads_write_disjoint_samples(lang):
    grid = OccupancyGrid((0, 0, 0, 1, 1, 1), (5, 4, 6), levels=2)
    grid.occupied = torch.rand(2, 5, 4, 6) < 0.5
    origins, directions = torch.rand(9, 3) - torch.tensor([1.0, 0, 0]), torch.tensor([1.0, 0.2, -0.1]).repeat(9, 1)
    ranges = torch.tensor([0.0, math.inf]).repeat(9, 1)
    given = (origins, directions, grid.aabb, grid.bits, torch.rand(9), grid.cells, ranges)
    numbers = (0.05, 0.02, math.log1p(0.02), math.inf)
    count, fill = built(lang, "f32", True)
    assert sanitize_call(count, *given, NOWHERE, *numbers, 100) == []
    counts, runs, _ = count(*given, NOWHERE, *numbers, 100)
    ends = counts.cumsum(0)
    assert ends[-1] > 30
    rays = torch.stack([ends - counts, counts], 1).int()
    assert sanitize_call(fill, *given, runs, rays, *numbers, s=int(ends[-1])) == []
