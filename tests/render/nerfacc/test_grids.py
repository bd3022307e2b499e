"""Boxes, grids and resampling by nerfacc's names, against plain Python in float64."""

from __future__ import annotations

import pytest
import torch

from tinsmith import ArgumentError, ShapeError
from tinsmith.render import nerfacc

pytestmark = pytest.mark.thinned(2)


def random_rays(n, dtype=torch.float64):
    origins = torch.randn(n, 3, dtype=dtype)
    directions = torch.nn.functional.normalize(0.8 * torch.randn(n, 3, dtype=dtype) - origins, dim=1)
    origins[0], directions[0] = torch.tensor([-2.0, 0.3, 0.3]), torch.tensor([1.0, 0.0, 0.0])  # parallel to faces
    return origins, directions


def nested_boxes(levels, dtype=torch.float64):
    box = torch.tensor([-1.0, -0.8, -1.0, 1.0, 0.8, 1.0], dtype=dtype)
    return torch.stack([box * 2**level for level in range(levels)])


# Boxes ----------------------------------------------------------------------------------------
def test_boxes():
    origins, directions = random_rays(200)
    boxes = torch.cat([nested_boxes(2), torch.tensor([[1.0, 1.0, 1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)])
    sides = torch.stack([(boxes[:, :3] - origins[:, None]), (boxes[:, 3:] - origins[:, None])]) / directions[:, None]
    enters, leaves = sides.amin(0).amax(-1), sides.amax(0).amin(-1)
    expected = (leaves >= enters) & (leaves > 0)
    t_mins, t_maxs, hits = nerfacc.ray_aabb_intersect(origins, directions, boxes, 0.1, 2.0, 7.0)
    assert hits.equal(expected) and 0 < hits.sum() < hits.numel()
    torch.testing.assert_close(t_mins, torch.where(expected, enters.clamp(min=0.1), 7.0))
    torch.testing.assert_close(t_maxs, torch.where(expected, leaves.clamp(max=2.0), 7.0))


def test_odd_rays_and_boxes():
    origins = torch.tensor([[0.5, 0.5, 0.5], [-1.0, 0.0, 0.5], [-1.0, -0.1, 0.5], [0.5, 0.5, 2.0]])
    directions = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    _, _, hits = nerfacc.ray_aabb_intersect(origins, directions, torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]]))
    # No direction; within a face; beside the box; the box is behind.
    assert hits[:, 0].tolist() == [False, True, False, False]


# Traversal ------------------------------------------------------------------------------------
def occupied_at(point, cells, boxes):
    """Return True if a point's cell is occupied, in the first of the boxes that contains it."""
    for grid, box in zip(cells, boxes, strict=True):
        within = (point - box[:3]) / (box[3:] - box[:3])
        if ((within >= 0) & (within < 1)).all():
            place = (within * torch.tensor(grid.shape)).long()
            return bool(grid[tuple(place.tolist())])
    return False


def expected_steps(origin, direction, cells, boxes, near, far, step):
    """Return intervals of even length from `near` on, whose middle is in an occupied cell before `far`."""
    outside = (boxes[-1][3:] - boxes[-1][:3]).norm() + origin.norm()
    last = int((min(far, float(outside)) - near) / step - 0.5)
    starts_of_part = [
        k for k in range(last + 1) if occupied_at(origin + (near + (k + 0.5) * step) * direction, cells, boxes)
    ]
    starts = torch.tensor([near + k * step for k in starts_of_part], dtype=torch.float64)
    return starts, starts + step


def steps_of(intervals, samples, ray):
    chosen = samples.ray_indices == ray
    return intervals.vals[intervals.is_left][chosen], intervals.vals[intervals.is_right][chosen]


@pytest.mark.parametrize("levels", [1, 3])
def test_traversal_finds_the_steps_in_occupied_cells(engine, levels):
    torch.manual_seed(levels)
    origins, directions = random_rays(24)
    boxes, cells = nested_boxes(levels), torch.rand(levels, 4, 5, 3) < 0.4
    near, far = torch.rand(24, dtype=torch.float64), 2 + 3 * torch.rand(24, dtype=torch.float64)
    intervals, samples, _ = nerfacc.traverse_grids(
        origins, directions, cells, boxes, near, far, step_size=0.02, engine=engine
    )
    assert len(samples.vals) > 200
    for ray in range(24):
        expected = expected_steps(origins[ray], directions[ray], cells, boxes, float(near[ray]), float(far[ray]), 0.02)
        torch.testing.assert_close(steps_of(intervals, samples, ray), expected, rtol=1e-9, atol=1e-9)


def test_traversal_describes_its_intervals(engine):
    origins, directions = random_rays(16)
    cells = torch.rand(1, 6, 6, 6) < 0.5
    intervals, samples, _ = nerfacc.traverse_grids(
        origins, directions, cells, nested_boxes(1), step_size=0.05, engine=engine
    )
    starts, ends = intervals.vals[intervals.is_left], intervals.vals[intervals.is_right]
    torch.testing.assert_close(samples.vals, (starts + ends) / 2)
    assert samples.packed_info.equal(nerfacc.pack_info(samples.ray_indices, 16)) and samples.is_valid.all()
    assert intervals.packed_info.equal(nerfacc.pack_info(intervals.ray_indices, 16))
    is_both = intervals.is_left & intervals.is_right
    # An edge is shared where an interval begins at the end of another. A ray may cut a corner of an empty cell between
    # two intervals; then both have an edge there.
    same_ray = samples.ray_indices[1:] == samples.ray_indices[:-1]
    touching = int((same_ray & ((starts[1:] - ends[:-1]).abs() < 1e-9)).sum())
    assert 0.9 * touching < is_both.sum() <= touching
    assert (intervals.is_left | intervals.is_right).all()
    for first, count in intervals.packed_info.tolist():
        assert (intervals.vals[first : first + count].diff() > -1e-12).all()


def test_a_step_of_zero_goes_from_cell_to_cell(engine):
    origins, directions = random_rays(32)
    cells = torch.rand(1, 4, 4, 4) < 0.5
    given = (origins, directions, cells, nested_boxes(1))
    intervals, samples, _ = nerfacc.traverse_grids(*given, step_size=0.0, engine=engine)
    fine, fine_samples, _ = nerfacc.traverse_grids(*given, step_size=1e-3, engine=engine)
    lengths, fine_lengths = (
        nerfacc.accumulate_along_rays(i.vals[i.is_right] - i.vals[i.is_left], None, s.ray_indices, 32)
        for i, s in ((intervals, samples), (fine, fine_samples))
    )
    assert len(samples.vals) < 32 * 12
    torch.testing.assert_close(lengths, fine_lengths, rtol=0, atol=0.02)


def test_a_cone_lengthens_its_steps(engine):
    origins, directions = torch.zeros(8, 3, dtype=torch.float64), random_rays(8)[1]
    cells = torch.ones(1, 3, 3, 3, dtype=torch.bool)
    options = {"step_size": 0.01, "cone_angle": 0.1, "engine": engine}
    intervals, samples, _ = nerfacc.traverse_grids(origins, directions, cells, nested_boxes(1), **options)
    _, t_maxs, _ = nerfacc.ray_aabb_intersect(origins, directions, nested_boxes(1))
    for ray in range(8):
        edges, end = [0.0], float(t_maxs[ray])
        while edges[-1] + max(0.01, 0.1 * edges[-1]) / 2 < end:
            edges.append(edges[-1] + max(0.01, 0.1 * edges[-1]))
        starts, ends = steps_of(intervals, samples, ray)
        torch.testing.assert_close(starts, torch.tensor(edges[:-1], dtype=torch.float64))
        torch.testing.assert_close(ends, torch.tensor(edges[1:], dtype=torch.float64))


@pytest.mark.parametrize("cone_angle", [0.0, 0.05])
def test_a_limit_and_what_follows_it(engine, cone_angle):
    """As nerfacc's example renders a test image: some steps at a time, for the rays that go on."""
    origins, directions = random_rays(20)
    grids = torch.rand(2, 4, 4, 4) < 0.6, nested_boxes(2)
    options = {"step_size": 0.04, "cone_angle": cone_angle, "engine": engine}
    whole, whole_samples, _ = nerfacc.traverse_grids(origins, directions, *grids, **options)
    mask, planes, parts = torch.ones(20, dtype=torch.bool), None, []
    while mask.any():
        intervals, samples, planes = nerfacc.traverse_grids(
            origins, directions, *grids, planes, None, 0.04, cone_angle, 7, True, mask, engine=engine
        )
        assert (samples.packed_info[:, 1] <= 7).all() and not samples.packed_info[~mask, 1].any()
        parts.append((samples.ray_indices, intervals.vals[intervals.is_left]))
        mask = samples.packed_info[:, 1] == 7
    assert len(parts) > 3
    for ray in range(20):
        starts = torch.cat([starts_of_part[indices == ray] for indices, starts_of_part in parts])
        torch.testing.assert_close(starts, steps_of(whole, whole_samples, ray)[0], rtol=1e-6, atol=1e-6)


def test_no_rays_and_no_samples(engine):
    none = torch.zeros(0, 3)
    cells, boxes = torch.zeros(1, 2, 2, 2, dtype=torch.bool), nested_boxes(1).float()
    for rays in ((none, none), (torch.zeros(2, 3), torch.ones(2, 3))):
        intervals, samples, planes = nerfacc.traverse_grids(*rays, cells, boxes, engine=engine)
        assert len(intervals.vals) == len(samples.vals) == 0 and len(planes) == len(rays[0])


# Resampling -----------------------------------------------------------------------------------
def expected_resampling(edges, cdfs, count):
    samples = []
    for number in range(count):
        u = cdfs[0] + (number + 0.5) * (cdfs[-1] - cdfs[0]) / count
        place = int(torch.searchsorted(cdfs, u, right=True).clamp(1, len(cdfs) - 1))
        low, high = cdfs[place - 1], cdfs[place]
        samples.append(edges[place - 1] + (u - low) / (high - low) * (edges[place] - edges[place - 1]))
    samples = torch.stack(samples)
    middles = (samples[1:] + samples[:-1]) / 2
    first, last = 2 * samples[:1] - middles[:1], 2 * samples[-1:] - middles[-1:]
    return torch.cat([first.clamp(min=edges[0]), middles, last.clamp(max=edges[-1])]), samples


def histograms(n, k):
    edges = torch.rand(n, k + 1, dtype=torch.float64).cumsum(1)
    weights = torch.rand(n, k, dtype=torch.float64) + 0.1
    return edges, torch.cat([edges.new_zeros(n, 1), weights.cumsum(1)], 1)


def test_batched_resampling(engine):
    edges, cdfs = histograms(4, 5)
    intervals, samples = nerfacc.importance_sampling(nerfacc.RayIntervals(edges), cdfs, 3, engine=engine)
    expected = [torch.stack(part) for part in zip(*map(expected_resampling, edges, cdfs, [3] * 4), strict=True)]
    torch.testing.assert_close([intervals.vals, samples.vals], expected)
    higher = nerfacc.RayIntervals(edges.view(2, 2, 6))
    again, _ = nerfacc.importance_sampling(higher, cdfs.view(2, 2, 6), 3, engine=engine)
    torch.testing.assert_close(again.vals, expected[0].view(2, 2, 4))
    jittered, _ = nerfacc.importance_sampling(nerfacc.RayIntervals(edges), cdfs, 3, True, engine=engine)
    assert not jittered.vals.equal(intervals.vals)


def test_packed_resampling(engine):
    edges, cdfs = histograms(3, 4)
    info = torch.tensor([[0, 5], [5, 5], [10, 5]])
    packed = nerfacc.RayIntervals(edges.reshape(-1), packed_info=info)
    numbers = torch.tensor([2, 0, 3])
    intervals, samples = nerfacc.importance_sampling(packed, cdfs.reshape(-1), numbers, engine=engine)
    parts = [expected_resampling(edges[ray], cdfs[ray], count) for ray, count in ((0, 2), (2, 3))]
    torch.testing.assert_close(intervals.vals, torch.cat([part[0] for part in parts]))
    torch.testing.assert_close(samples.vals, torch.cat([part[1] for part in parts]))
    assert samples.ray_indices.tolist() == [0, 0, 2, 2, 2] and samples.packed_info.tolist() == [[0, 2], [2, 0], [2, 3]]
    assert intervals.packed_info.tolist() == [[0, 3], [3, 0], [3, 4]]
    assert intervals.is_left.tolist() == [True, True, False, True, True, True, False]
    assert intervals.is_right.tolist() == [False, True, True, False, True, True, True]


@pytest.mark.parametrize("key", ["batched", "packed"])
@pytest.mark.parametrize("query", ["batched", "packed"])
def test_searching(engine, key, query):
    edges, values = histograms(3, 5)[0], 3 * torch.rand(3, 4, dtype=torch.float64)
    right = torch.searchsorted(edges, values, right=True).clamp(max=5)
    left = (torch.searchsorted(edges, values, right=True) - 1).clamp(0, 4)

    def given(way, kind, vals):
        starts = torch.arange(3) * vals.shape[1]
        info = torch.stack([starts, torch.full_like(starts, vals.shape[1])], 1)
        return kind(vals) if way == "batched" else kind(vals.reshape(-1), packed_info=info)

    ids = nerfacc.searchsorted(
        given(key, nerfacc.RayIntervals, edges), given(query, nerfacc.RaySamples, values), engine=engine
    )
    shift = 0 if query == "batched" else torch.arange(3)[:, None] * 6
    expected = (
        (left + shift, right + shift)
        if query == "batched"
        else ((left + shift).reshape(-1), (right + shift).reshape(-1))
    )
    assert all(map(torch.equal, ids, expected))


ORIGIN = torch.zeros(1, 3)
CELLS, BOX = torch.ones(1, 2, 2, 2, dtype=torch.bool), torch.tensor([[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]])
REFUSED = [
    (lambda: nerfacc.ray_aabb_intersect(ORIGIN, ORIGIN, BOX[0]), ShapeError, "one box is `aabb[None]`"),
    (lambda: nerfacc.traverse_grids(ORIGIN, ORIGIN, CELLS[0], BOX), ShapeError, "binaries  [m, x, y, z] = (2, 2, 2)"),
    (
        lambda: nerfacc.traverse_grids(ORIGIN, ORIGIN, CELLS, BOX, over_allocate=True),
        ArgumentError,
        "`over_allocate` of `traverse_grids` needs a limit",
    ),
    (
        lambda: nerfacc.searchsorted(nerfacc.RaySamples(torch.ones(3)), nerfacc.RaySamples(torch.ones(1, 3))),
        ArgumentError,
        "`sorted_sequence` of `searchsorted` does not say which number belongs to which ray",
    ),
    (
        lambda: nerfacc.searchsorted(nerfacc.RaySamples(torch.ones(2, 3)), nerfacc.RaySamples(torch.ones(1, 3))),
        ArgumentError,
        "sorted_sequence  2 rays",
    ),
    (
        lambda: nerfacc.importance_sampling(nerfacc.RayIntervals(torch.ones(1, 3)), torch.ones(1, 2), 2),
        ShapeError,
        "do not fit each other",
    ),
]


@pytest.mark.parametrize(("make", "kind", "words"), REFUSED)
def test_refused(make, kind, words):
    with pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)
