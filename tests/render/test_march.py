"""Marching: against the twin, which looks at every sample of the lattice, and what is promised of the arrays."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch.autograd.gradcheck import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import cases
import tinsmith as ts
from tinsmith import reference
from tinsmith.render import OccupancyGrid, march

BOX = (-1.0, -0.5, 0.25, 1.0, 0.75, 2.0)
CUBE = (0, 0, 0, 1, 1, 1)


def a_grid(resolution, levels, part, engine=None):
    """Make a grid with random clusters of occupied cells; or every other cell occupied."""
    grid = OccupancyGrid(BOX, resolution, levels, engine=engine)
    if part == "stripes":
        grid.occupied = (sum(torch.meshgrid(*map(torch.arange, grid.resolution), indexing="ij")) % 2 == 0)[None]
        return grid
    coarse = torch.rand(1, levels, 5, 5, 5) < part
    grid.occupied = torch.nn.functional.interpolate(coarse.float(), grid.resolution)[0].bool()
    return grid


def draw_rays(count, spread=1.5, dtype=torch.float64):
    """Draw rays from inside and outside of the box, most toward it; some are parallel to faces."""
    origins = torch.tensor([0.0, 0.1, 1.0]) + spread * torch.randn(count, 3)
    aims = torch.tensor([0.0, 0.1, 1.0]) + 0.7 * torch.randn(count, 3)
    directions = (aims - origins) * (0.5 + torch.rand(count, 1))
    directions = torch.where(torch.rand(count, 3) < 0.1, 0.0, directions)
    return origins.to(dtype), directions.to(dtype)


# resolution, levels, part occupied, and what march is told
CASES = {
    "one level": (8, 1, 0.3, {"step": 0.02}),
    "several levels": ((6, 7, 5), 3, 0.4, {"step": 0.05}),
    "a cone": (16, 2, 0.3, {"step": 0.01, "cone_angle": 0.05}),
    "a cone from the start": (8, 1, 0.5, {"step": 1e-4, "cone_angle": 0.1, "near": 0.2}),
    "a cone that stops growing": (16, 2, 0.4, {"step": 0.01, "cone_angle": 0.05, "max_step": 0.06}),
    "a cone that never grows": (8, 1, 0.5, {"step": 0.02, "cone_angle": 0.5, "max_step": 0.02}),
    "a cone that has grown before": (8, 2, 0.5, {"step": 1e-3, "cone_angle": 0.1, "max_step": 0.05, "near": 0.7}),
    "a longest step that is never reached": (8, 1, 0.5, {"step": 0.02, "max_step": 0.03}),
    "a scene in the grid": (8, 2, 0.6, {"step": 0.03, "scene_box": (-0.7, -0.8, 0.1, 0.4, 0.9, 1.3)}),
    "a scene around the grid": (8, 1, 0.6, {"step": 0.03, "scene_box": (-9, -9, -9, 9.5, 9, 9)}),
    "a scene across the grid": (8, 1, 0.6, {"step": 0.03, "scene_box": (0.3, -9, 0.5, 9, 0.2, 9), "near": 0.2}),
    "near and far": (8, 1, 0.6, {"step": 0.03, "near": 0.4, "far": 0.9}),
    "before the origin": (8, 1, 0.6, {"step": 0.03, "near": -2.0, "far": 1.0}),
    "few steps": ((3, 1, 9), 1, 0.6, {"step": 0.01, "max_steps": 5}),
    "long steps": (32, 1, 0.5, {"step": 0.7}),
    "more runs than are kept": (24, 1, "stripes", {"step": 0.03}),
    "all empty": (8, 2, 0.0, {"step": 0.02}),
    "all full": ((8, 4, 12), 2, 1.0, {"step": 0.04}),
}


@pytest.mark.thinned(8)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_samples_agree_with_the_twin(engine, case):
    resolution, levels, part, options = case
    grid = a_grid(resolution, levels, part)
    origins, directions = draw_rays(300)
    offsets = torch.rand(300, dtype=torch.float64)
    ours = march(origins, directions, grid, jitter=offsets, engine=engine, **options)
    box = {name: torch.tensor(given, dtype=torch.float64) for name, given in options.items() if name == "scene_box"}
    twin = reference.march(origins, directions, grid.aabb.double(), grid.occupied, offsets, **{**options, **box})
    cases.assert_close((ours.rays, ours.ray_index, ours.t, ours.steps), twin)
    assert ours.total == len(ours.t)
    assert (len(ours.t) > 50) == (part != 0), "the case does not show what its name says"


def test_a_box_is_a_grid_that_is_occupied_everywhere(engine):
    origins, directions = draw_rays(100, dtype=torch.float32)
    grid = OccupancyGrid(BOX, 12)
    ours, all_full = (march(origins, directions, it, step=0.02, engine=engine) for it in (BOX, grid))
    assert torch.equal(ours.rays, all_full.rays)
    torch.testing.assert_close(ours.t, all_full.t)
    assert (ours.rays[:, 1] == 0).any() and (ours.rays[:, 1] > 50).any()


# (origin, direction), and where the samples are in the unit cube, a quarter apart.
SPECIAL = {
    "through a corner": ((-1, -1, -1), (1, 1, 1), [1.125, 1.375, 1.625, 1.875]),
    "touches a corner": ((-1, 1, 1), (1, -1, 0), []),
    "within a face": ((-1, 0, 0.5), (1, 0, 0), [1.125, 1.375, 1.625, 1.875]),
    "within an edge": ((-1, 1, 1), (2, 0, 0), [0.625, 0.875]),
    "along the faces of cells": ((0.5, 0.5, 2), (0, 0, -1), [1.125, 1.375, 1.625, 1.875]),
    "beside a face": ((-1, -0.001, 0.5), (1, 0, 0), []),
    "away": ((-1, 0.5, 0.5), (-1, 0, 0), []),
    "from inside": ((0.25, 0.5, 0.5), (1, -0.0, 0), [0.125, 0.375, 0.625]),
    "from a face, outwards": ((1, 0.5, 0.5), (1, 0, 0), []),
    "less than a step": ((0.9, 0.5, 0.5), (1, 0, 0), []),
    "just enough": ((0.8, 0.5, 0.5), (1, 0, 0), [0.125]),
    "no direction": ((0.5, 0.5, 0.5), (0, 0, 0), []),
    "a subnormal number": ((-1, 0.5, 0.5), (1, 1e-42, 0), [1.125, 1.375, 1.625, 1.875]),
}


@pytest.mark.parametrize("kind", ["a box", "a grid"])
def test_special_rays(engine, kind):
    origins, directions = (torch.tensor([row[k] for row in SPECIAL.values()], dtype=torch.float32) for k in (0, 1))
    where = OccupancyGrid(CUBE, 4) if kind == "a grid" else CUBE
    samples = march(origins, directions, where, step=0.25, engine=engine)
    for name, (*_, expected), (start, count) in zip(SPECIAL, SPECIAL.values(), samples.rays.tolist(), strict=True):
        assert samples.t[start : start + count].tolist() == pytest.approx(expected), name
        assert samples.steps[start : start + count].tolist() == [0.25] * count, name


def test_near_and_far_of_each_ray_are_those_of_the_twin(engine):
    grid = a_grid(8, 2, 0.6)
    origins, directions = draw_rays(200)
    offsets, near = torch.rand(200, dtype=torch.float64), torch.rand(200, dtype=torch.float64)
    options = {"near": near, "far": near + torch.rand(200, dtype=torch.float64)}
    ours = march(origins, directions, grid, jitter=offsets, step=0.02, engine=engine, **options)
    twin = reference.march(origins, directions, grid.aabb.double(), grid.occupied, offsets, step=0.02, **options)
    cases.assert_close((ours.rays, ours.ray_index, ours.t, ours.steps), twin)
    assert len(ours.t) > 50


def test_samples_lie_in_the_scene(engine):
    origins, directions = draw_rays(100, dtype=torch.float32)
    scene = (-0.7, -0.3, 0.1, 0.4, 0.6, 1.3)
    samples = march(origins, directions, OccupancyGrid(BOX, 4, levels=2), step=0.02, scene_box=scene, engine=engine)
    places = samples.positions(origins, directions)
    low, high = torch.tensor(scene).view(2, 3)
    assert len(places) > 500
    assert (places > low - 1e-5).all() and (places < high + 1e-5).all()
    first = ts.render.ray_aabb_intersect(origins, directions, scene, engine=engine)
    starts = samples.rays[:, 0].long()[samples.rays[:, 1] > 0]
    torch.testing.assert_close(samples.t[starts] - 0.01, first.t_near[samples.rays[:, 1] > 0], rtol=0, atol=1e-5)


def test_broken_rays_harm_nobody(engine):
    origins, directions = torch.full((6, 3), -1.0), torch.ones(6, 3)
    origins[0], directions[1], origins[2, 1], directions[3, 0] = math.nan, math.nan, math.inf, -math.inf
    samples = march(origins, directions, OccupancyGrid(CUBE, 4, levels=2), step=0.1, max_steps=30, engine=engine)
    assert samples.rays[4:, 1].tolist() == [20, 20]
    assert (samples.rays[:, 1] <= 30).all()


def test_no_rays(engine):
    none = torch.empty(0, 3)
    for capacity in (None, 5):
        samples = march(none, none, CUBE, step=0.1, capacity=capacity, engine=engine)
        assert samples.rays.shape == (0, 2) and samples.total == 0
        assert samples.positions(none, none).shape == (capacity or 0, 3)


class NothingIsRead(TorchDispatchMode):
    """Refuses what makes the host wait for a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default), func
        return func(*args, **(kwargs or {}))


def test_with_a_capacity_nothing_is_copied_to_the_host(engine):
    grid = a_grid(8, 2, 0.4)
    origins, directions = draw_rays(60, dtype=torch.float32)
    whole = march(origins, directions, grid, step=0.02, engine=engine)
    with NothingIsRead():
        roomy = march(origins, directions, grid, step=0.02, capacity=len(whole.t) + 7, engine=engine)
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NothingIsRead():
        march(origins, directions, grid, step=0.02, engine=engine)
    assert torch.equal(roomy.rays, whole.rays)
    assert torch.equal(roomy.t[:-7], whole.t) and torch.equal(roomy.ray_index[:-7], whole.ray_index)
    for tail in (roomy.t, roomy.steps, roomy.ray_index, roomy.positions(origins, directions)):
        assert not tail[-7:].any()


@pytest.mark.parametrize("cut", [0, 1, 7, 300])
def test_rays_are_cut_where_the_arrays_are_full(engine, cut):
    grid = a_grid(8, 1, 0.4)
    origins, directions = draw_rays(60, dtype=torch.float32)
    whole = march(origins, directions, grid, step=0.02, engine=engine)
    size = len(whole.t) - cut
    samples = march(origins, directions, grid, step=0.02, capacity=size, engine=engine)
    assert samples.total == len(whole.t)
    assert torch.equal(samples.t, whole.t[:size]) and torch.equal(samples.steps, whole.steps[:size])
    assert torch.equal(samples.rays[:, 1], torch.bincount(whole.ray_index[:size], minlength=60).int())
    assert (samples.rays.sum(1) <= size).all()


def test_jitter_moves_samples_within_their_intervals(engine):
    origins, directions = draw_rays(50, spread=0.2, dtype=torch.float32)
    draw = torch.Generator().manual_seed(3)
    drawn = march(origins, directions, BOX, step=0.05, jitter=draw, engine=engine)
    again = march(origins, directions, BOX, step=0.05, jitter=torch.Generator().manual_seed(3), engine=engine)
    other = march(origins, directions, BOX, step=0.05, jitter=True, engine=engine)
    assert torch.equal(drawn.t, again.t)
    assert not torch.equal(drawn.t[: len(other.t)], other.t[: len(drawn.t)])
    middles = march(origins, directions, BOX, step=0.05, engine=engine)
    firsts = [it.t[it.rays[:, 0].long()] for it in (drawn, middles)]
    apart = (firsts[0] - firsts[1]) / 0.05
    assert apart.min() < -0.4 and apart.max() > 0.4 and apart.abs().max() <= 0.5


@pytest.mark.costly
def test_jittered_sums_are_integrals_on_average(engine):
    """Of t^2 along a ray through the box, whose length is no multiple of the step."""
    count = 4000
    origins = torch.tensor([[-2.0, 0.1, 0.9]], dtype=torch.float64).expand(count, 3)
    directions = torch.tensor([[1.0, 0, 0]], dtype=torch.float64).expand(count, 3)
    for cone in (0.0, 0.2):
        samples = march(origins, directions, BOX, step=0.3, cone_angle=cone, jitter=True, engine=engine)
        sums = torch.zeros(count, dtype=torch.float64).index_add_(0, samples.ray_index, samples.t**2 * samples.steps)
        assert sums.mean().item() == pytest.approx((3**3 - 1) / 3, abs=5 * sums.std().item() / count**0.5)


def test_places_and_their_gradients(engine):
    grid = a_grid(4, 1, 0.5)
    inputs = draw_rays(12)
    samples = march(*inputs, grid, step=0.4, engine=engine, capacity=60)
    named = torch.arange(60) < samples.total
    index = samples.ray_index.long()

    def places(origins, directions):
        return (origins[index] + samples.t[:, None] * directions[index]) * named[:, None]

    cases.assert_same_values_and_gradients(samples.positions, places, inputs)
    cases.assert_same_values_and_gradients(
        samples.directions, lambda directions: directions[index] * named[:, None], inputs[1:]
    )
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    assert gradcheck(samples.positions, leaves)


def test_t_of_samples_may_want_a_gradient(engine):
    origins, directions = draw_rays(5, spread=0.2)
    samples = march(origins, directions, BOX, step=0.3, engine=engine)
    t = samples.t.clone().requires_grad_()
    moved = ts.render.Samples(samples.rays, samples.ray_index, t, samples.steps, samples.total)
    weight = torch.randn(len(t), 3, dtype=torch.float64)
    (slope,) = torch.autograd.grad((moved.positions(origins, directions) * weight).sum(), t)
    torch.testing.assert_close(slope, (weight * directions[samples.ray_index.long()]).sum(-1))


@pytest.mark.costly
def test_one_and_two_threads_give_the_same_bits(engine, lang):
    grid = a_grid(16, 1, 0.4)
    inputs, results = draw_rays(3000, dtype=torch.float32), []
    for threads in (1, 2):
        lang.init(arch=lang.cpu, cpu_max_num_threads=threads, offline_cache=False, log_level=lang.WARN)
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        samples = march(*leaves, grid, step=0.03, engine=engine)
        places = samples.positions(*leaves)
        gradients = torch.autograd.grad((places * places).sum(), leaves)
        results.append([samples.rays, samples.t, places, *gradients])
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


def test_march_itself_has_no_gradient():
    origins, directions = (tensor.requires_grad_() for tensor in draw_rays(3, spread=0.2))
    samples = march(origins, directions, BOX, step=0.3)
    assert not samples.t.requires_grad and not samples.steps.requires_grad


@pytest.mark.gpu
def test_on_cuda_it_agrees_with_the_twin(engine):
    grid = a_grid((6, 7, 5), 3, 0.4)
    inputs, offsets = draw_rays(300), torch.rand(300, dtype=torch.float64)
    twin = reference.march(*inputs, grid.aabb.double(), grid.occupied, offsets, step=0.05, cone_angle=0.02)
    there = [tensor.cuda() for tensor in inputs]
    samples = march(*there, grid.cuda(), jitter=offsets.cuda(), step=0.05, cone_angle=0.02, engine=engine)
    assert torch.equal(samples.rays.cpu(), twin[0]) and torch.equal(samples.ray_index.cpu(), twin[1])
    torch.testing.assert_close(samples.t.cpu(), twin[2], rtol=1e-9, atol=1e-9)
    places = samples.positions(*there).cpu()
    index = twin[1].long()
    torch.testing.assert_close(places, inputs[0][index] + twin[2][:, None] * inputs[1][index], rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
def test_on_cuda_with_a_capacity_the_host_does_not_wait(engine):
    grid, inputs = a_grid(8, 2, 0.4).cuda(), [tensor.cuda() for tensor in draw_rays(300, dtype=torch.float32)]
    march(*inputs, grid, step=0.02, capacity=9000, engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        marched = [march(*inputs, it, step=0.02, capacity=9000, jitter=True, engine=engine) for it in (grid, BOX)]
        places = marched[0].positions(*inputs)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert places.shape == (9000, 3) and places.any()


REFUSED = {
    "step": ({"step": 0.0}, "a positive number", "0.0"),
    "step that is no number": ({"step": math.nan}, "a positive number", "nan"),
    "max_steps": ({"max_steps": 0}, "an integer, 1 to 2^31 - 1", "0"),
    "cone_angle": ({"cone_angle": -0.1}, "0 or a positive number", "-0.1"),
    "capacity": ({"capacity": -1}, "an integer, 0 to 2^31 - 1, or None", "-1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_out_of_range_are_refused(name):
    options, expected, passed = REFUSED[name]
    with pytest.raises(ts.ArgumentError) as caught:
        march(torch.zeros(1, 3), torch.ones(1, 3), CUBE, **{"step": 0.1, **options})
    assert str(caught.value) == (
        f"`{name.split()[0]}` is out of range in march\n  expected  {expected}\n  got       {passed}\n"
        f"Pass another {name.split()[0]}."
    )


def test_tensors_that_do_not_fit_are_refused():
    with pytest.raises(ts.ArgumentError, match="`near` and `far` are not a range in march"):
        march(torch.zeros(1, 3), torch.ones(1, 3), CUBE, step=0.1, near=1, far=0)
    with pytest.raises(ts.ArgumentError, match=r"`max_step` is out of range in march(?s:.)*0.1 \(the step\) or more"):
        march(torch.zeros(1, 3), torch.ones(1, 3), CUBE, step=0.1, max_step=0.05)
    with pytest.raises(ts.ShapeError, match="`scene_box` is not a box"):
        march(torch.zeros(1, 3), torch.ones(1, 3), CUBE, step=0.1, scene_box=(1, 0, 0, 0, 1, 1))
    with pytest.raises(ts.ShapeError, match="`far` does not fit the rays of `march`"):
        march(torch.zeros(2, 3), torch.ones(2, 3), CUBE, step=0.1, far=torch.ones(3))
    with pytest.raises(ts.ShapeError, match="directions"):
        march(torch.zeros(2, 3), torch.ones(3, 3), CUBE, step=0.1)
    with pytest.raises(ts.ShapeError, match="offsets"):
        march(torch.zeros(2, 3), torch.ones(2, 3), CUBE, step=0.1, jitter=torch.zeros(3))
    with pytest.raises(ts.DtypeError, match="`march` works in float32 or float64"):
        march(torch.zeros(2, 3).half(), torch.ones(2, 3).half(), CUBE, step=0.1)
