"""Solids that rays meet: crossings against the solids' equations and small steps along the rays; the own scene."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tinsmith.apps.scenes._built_in_scene import SOLIDS, Placed, cast_rays, make_pose, render_own_scene, render_picture
from tinsmith.apps.scenes._solids import Box, Cylinder, Sphere, Torus


def _sphere(p):
    return p.norm(dim=-1) - 0.7


def _box(p):
    return (p.abs() - p.new_tensor([0.5, 0.3, 0.8])).amax(-1)


def _cylinder(p):
    return torch.maximum(p[..., :2].norm(dim=-1) - 0.4, p[..., 2].abs() - 0.6)


def _torus(p):
    return torch.hypot(p[..., :2].norm(dim=-1) - 0.6, p[..., 2]) - 0.25


# Each with a function that is negative inside, with slope 1 at most.
CASES = {
    "sphere": (Sphere(0.7), _sphere),
    "box": (Box((0.5, 0.3, 0.8)), _box),
    "cylinder": (Cylinder(0.4, 0.6), _cylinder),
    "torus": (Torus(0.6, 0.25), _torus),
}


def draw_rays(n):
    draw = torch.Generator().manual_seed(n)
    origins = torch.randn(n, 3, generator=draw, dtype=torch.float64)
    origins = origins / origins.norm(dim=-1, keepdim=True) * 2
    towards = torch.rand(n, 3, generator=draw, dtype=torch.float64) * 2 - 1
    return origins, (towards - origins) * (0.2 + torch.rand(n, 1, generator=draw, dtype=torch.float64))


@pytest.mark.parametrize("name", CASES)
def test_rays_hit_the_first_point_on_the_surface(name):
    solid, inside = CASES[name]
    origins, directions = draw_rays(2000)
    t = solid.intersect(origins, directions)
    hit = torch.isfinite(t)
    assert 0.2 < hit.double().mean() < 0.9
    points = origins + t[:, None] * directions
    assert inside(points[hit]).abs().max() < 1e-9
    shares = torch.linspace(0, 1, 400, dtype=torch.float64)
    reach = torch.where(hit, t * (1 - 1e-6), 6 / directions.norm(dim=-1))
    along = origins + (shares[:, None] * reach)[..., None] * directions
    assert inside(along).min() > -1e-3  # nothing is met before, and on a miss nothing at all


@pytest.mark.parametrize("name", CASES)
def test_normals_point_outwards_along_the_gradient(name):
    solid, inside = CASES[name]
    origins, directions = draw_rays(500)
    t = solid.intersect(origins, directions)
    hit = torch.isfinite(t)
    points = (origins + t[:, None] * directions)[hit].requires_grad_()
    gradient = torch.autograd.grad(inside(points).sum(), points)[0]
    torch.testing.assert_close(solid.normal(points.detach()), gradient, atol=1e-6, rtol=0)


def test_rays_from_inside_and_along_axes():
    def met(solid, origin, direction):
        return solid.intersect(*(torch.tensor([x], dtype=torch.float64) for x in (origin, direction))).item()

    assert met(Sphere(0.5), (0, 0, 0), (0, 0, 2)) == pytest.approx(0.25)
    assert met(Box((1, 2, 3)), (0, 0, 0), (0, 1, 0)) == pytest.approx(2)
    assert met(Box((1, 2, 3)), (5, 0, 0), (-1, 0, 0)) == pytest.approx(4)
    assert met(Box((1, 2, 3)), (5, 0, 4), (-1, 0, 0)) == math.inf
    assert met(Box((1, 2, 3)), (5, 0, 3), (-1, 0, 0)) == pytest.approx(4)  # within the plane of a face
    assert met(Box((1, 2, 3)), (5, 0, 0), (1, 0, 0)) == math.inf  # behind
    assert met(Cylinder(1, 2), (0, 0, 5), (0, 0, -1)) == pytest.approx(3)
    assert met(Cylinder(1, 2), (5, 0, 0), (-1, 0, 0)) == pytest.approx(4)
    assert met(Torus(1, 0.25), (0, 0, 5), (0, 0, -1)) == math.inf  # through the hole
    assert met(Torus(1, 0.25), (1, 0, 5), (0, 0, -1)) == pytest.approx(4.75)
    assert met(Torus(1, 0.25), (0, 0, 0), (1, 0, 0)) == pytest.approx(0.75)


def test_a_placed_solid_is_the_solid_turned_and_moved():
    placed = Placed(Box((0.5, 0.3, 0.8)), (0.2, -0.1, 0.3), lambda points: points, turn=(40, 25))
    origins, directions = draw_rays(500)
    t = placed.intersect(origins, directions)
    x, z = math.radians(40), math.radians(25)
    about_x = np.array([[1, 0, 0], [0, math.cos(x), -math.sin(x)], [0, math.sin(x), math.cos(x)]])
    about_z = np.array([[math.cos(z), -math.sin(z), 0], [math.sin(z), math.cos(z), 0], [0, 0, 1]])
    points = (origins + t[:, None] * directions)[torch.isfinite(t)].numpy()
    own = np.linalg.solve(about_z @ about_x, (points - [0.2, -0.1, 0.3]).T).T
    assert np.abs((np.abs(own) - [0.5, 0.3, 0.8]).max(-1)).max() < 1e-9


def test_rays_see_the_nearest_solid_shaded_and_shadowed():
    down = torch.tensor([[0.0, 0, -1]], dtype=torch.float64)
    above = torch.tensor([[0.0, 0.0, 4]], dtype=torch.float64)
    seen = cast_rays(above, down)[0]
    ground = SOLIDS[0].paint(torch.zeros(1, 3, dtype=torch.float64))[0]
    high = 0.8 / math.hypot(0.5, -0.35, 0.8)  # cosine of the light's angle
    shine = math.cos(math.acos(high) / 2) ** 24
    torch.testing.assert_close(seen[:3], ground * (0.35 + 0.65 * high) + 0.25 * shine)
    assert seen[3] == 1
    assert torch.equal(cast_rays(above + 5, down)[0], torch.zeros(4, dtype=torch.float64))  # beside all of it
    solid = torch.stack(
        [cast_rays(above + torch.tensor([x, y, 0.0]), down)[0, :3] for x, y in ((-0.5, 0.42), (0.55, 0.45))]
    )
    assert (solid[0] - solid[1]).abs().max() > 0.2  # the ball and the box differ
    dark = cast_rays(torch.tensor([[-0.85, 0.75, 4]], dtype=torch.float64), down)[
        0
    ]  # the ball lies between it and the light
    assert dark[:3].max() < 0.35


def test_edges_are_antialiased_and_colors_not_premultiplied():
    picture = render_picture(make_pose(0.4, 0.5), 26.0, (24, 20)).float() / 255
    alpha = picture[..., 3]
    assert picture.shape == (20, 24, 4)
    edge = (alpha > 0.05) & (alpha < 0.95)
    assert 10 < edge.sum() < 120 and (alpha == 0).any() and (alpha == 1).any()
    assert picture[edge][:, :3].amax(-1).min() > 0.1  # not darkened by what is see-through


def test_the_built_in_scene_is_complete_and_repeatable():
    dataset = render_own_scene(32)
    assert (len(dataset.train), len(dataset.test), dataset.width, dataset.height) == (60, 10, 32, 32)
    assert dataset.is_transparent and render_own_scene(32).digest == dataset.digest
    for views in (dataset.train, dataset.test):
        assert views.pictures[:, [0, -1], :, 3].max() == 0  # nothing is cut off
        assert (views.poses[:, 2, 3] > 0).all()
