"""Rays through a box: against the twin, and where rounding and division by zero lie in wait."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd.gradcheck import gradcheck

import cases
import tinsmith as ts
from tinsmith import reference
from tinsmith.render import ray_aabb_intersect

BOX = torch.tensor([-1.0, -0.5, 0.25, 1.0, 0.75, 2.0], dtype=torch.float64)


def draw_rays(count, dtype=torch.float64):
    """Draw rays from inside and outside, half of them parallel to faces."""
    origins = 3 * torch.randn(count, 3, dtype=dtype)
    aims = BOX[:3] + (BOX[3:] - BOX[:3]) * (1.6 * torch.rand(count, 3) - 0.3)
    directions = (aims.to(dtype) - origins) * (0.2 + torch.rand(count, 1, dtype=dtype))
    directions = torch.where(torch.rand(count, 3) < 0.2, 0.0, directions)
    directions[0] = 0.0
    return origins, directions


@pytest.mark.parametrize(("near", "far"), [(0.0, math.inf), (0.4, 0.9), (-5.0, 1.1)])
def test_values_and_gradients_agree_with_the_twin(engine, near, far):
    inputs = (*draw_rays(400), BOX)
    finite = 1e3 if math.isinf(far) else far  # infinities would have no gradient to compare
    ours = ray_aabb_intersect(*inputs, near=near, far=far, engine=engine)
    cases.assert_close(ours, reference.ray_aabb_intersect(*inputs, near=near, far=far))
    assert 0.1 < ours.hit.float().mean() < 0.9
    cases.assert_same_values_and_gradients(
        lambda *given: tuple(ray_aabb_intersect(*given, near=near, far=finite, engine=engine)),
        lambda *given: reference.ray_aabb_intersect(*given, near=near, far=finite),
        inputs,
    )


def test_gradcheck(engine):
    origins, directions = draw_rays(30)
    keeps = ray_aabb_intersect(origins, directions, BOX, engine=engine).hit & (directions != 0).all(-1)
    assert keeps.sum() > 5
    inputs = [tensor.requires_grad_() for tensor in (origins[keeps], directions[keeps], BOX.clone())]
    assert gradcheck(lambda *given: tuple(ray_aabb_intersect(*given, engine=engine)[:2]), inputs)


# (origin, direction), and (t_near, t_far) in the unit cube, or None for a miss.
SPECIAL = {
    "through a corner": ((-1, -1, -1), (1, 1, 1), (1, 2)),
    "touches a corner": ((-1, 1, 1), (1, -1, 0), (1, 1)),
    "just past a corner": ((-1, 1, 1.001), (1, -1, 0), None),
    "within a face": ((-1, 0, 0.5), (1, 0, 0), (1, 2)),
    "within an edge": ((-1, 1, 1), (2, 0, 0), (0.5, 1)),
    "beside a face": ((-1, -0.001, 0.5), (1, 0, 0), None),
    "parallel, negative zero": ((2, 0.5, 0.5), (-1, -0.0, -0.0), (1, 2)),
    "away from the box": ((-1, 0.5, 0.5), (-1, 0, 0), None),
    "from inside": ((0.25, 0.5, 0.5), (1, 0, 0), (0, 0.75)),
    "from a face, inwards": ((0, 0.5, 0.5), (1, 0, 0), (0, 1)),
    "from a face, outwards": ((0, 0.5, 0.5), (-1, 0, 0), (0, 0)),
    "no direction, inside": ((0.5, 0.5, 0.5), (0, 0, 0), (0, math.inf)),
    "no direction, outside": ((0.5, 1.5, 0.5), (0, 0, 0), None),
    "almost parallel, inside": ((-1, 0.5, 0.5), (1, 1e-30, -1e-30), (1, 2)),
    "almost parallel, outside": ((-1, 1.5, 0.5), (1, 1e-30, 0), None),
    "a subnormal number": ((-1, 0.5, 0.5), (1, 1e-42, 0), (1, 2)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_rays(engine, dtype):
    origins, directions = (torch.tensor([row[k] for row in SPECIAL.values()], dtype=dtype) for k in (0, 1))
    leaves = [tensor.requires_grad_() for tensor in (origins, directions)]
    crossing = ray_aabb_intersect(*leaves, (0, 0, 0, 1, 1, 1), engine=engine)
    for name, (*_, expected), t_near, t_far, hit in zip(SPECIAL, SPECIAL.values(), *crossing, strict=True):
        span = (math.inf, math.inf) if expected is None else expected
        assert (t_near.item(), t_far.item(), hit.item()) == (*span, expected is not None), name
    finite = [torch.where(t.isinf(), 0.0, t).sum() for t in crossing[:2]]
    gradients = torch.autograd.grad(sum(finite), leaves)
    missed = ~crossing.hit
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert not gradient[missed].any()
    by_origin = dict(zip(SPECIAL, gradients[0].tolist(), strict=True))
    assert by_origin["parallel, negative zero"] == [2, 0, 0]
    assert by_origin["within a face"] == [-2, 0, 0]


def test_broken_rays_miss_and_harm_nobody(engine):
    origins, directions = torch.zeros(4, 3), torch.ones(4, 3)
    origins[0], directions[1] = math.nan, math.nan
    crossing = ray_aabb_intersect(origins - 1, directions, (0, 0, 0, 1, 1, 1), engine=engine)
    assert crossing.hit[2:].tolist() == [True, True]
    assert crossing.t_near[2:].tolist() == [1.0, 1.0]


def test_no_rays(engine):
    crossing = ray_aabb_intersect(torch.empty(0, 3), torch.empty(0, 3), (0, 0, 0, 1, 1, 1), engine=engine)
    assert [tuple(tensor.shape) for tensor in crossing] == [(0,)] * 3
    assert crossing.hit.dtype == torch.bool


def test_refusals():
    ray = torch.zeros(1, 3), torch.ones(1, 3)
    with pytest.raises(ts.ShapeError) as caught:
        ray_aabb_intersect(*ray, (0, 0, 0, 1, 0, 1))
    assert str(caught.value).splitlines()[0] == "`aabb` is not a box"
    assert "[0.0, 0.0, 0.0, 1.0, 0.0, 1.0]" in str(caught.value)
    with pytest.raises(ts.ArgumentError) as caught:
        ray_aabb_intersect(*ray, (0, 0, 0, 1, 1, 1), near=2, far=1)
    assert str(caught.value).splitlines()[:2] == [
        "`near` and `far` are not a range in ray_aabb_intersect",
        "  near  2",
    ]
    with pytest.raises(ts.ShapeError, match="aabb"):
        ray_aabb_intersect(*ray, torch.zeros(5))
