"""Rendering in rounds: against one pass of march and the twin of compositing, and what the field is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tinsmith as ts
from tinsmith import reference
from tinsmith.render import OccupancyGrid, render_in_rounds

pytestmark = pytest.mark.thinned(4)

BOX = (-1.0, -0.5, 0.25, 1.0, 0.75, 2.0)
CUBE = (0, 0, 0, 1, 1, 1)


def some_rays(count=150):
    generator = torch.Generator().manual_seed(3)
    origins = torch.tensor([0.0, 0.1, 1.0]) + 1.5 * torch.randn(count, 3, generator=generator)
    aims = torch.tensor([0.0, 0.1, 1.0]) + 0.7 * torch.randn(count, 3, generator=generator)
    return origins.double(), (aims - origins).double()


def a_grid():
    grid = OccupancyGrid(BOX, 8, levels=2)
    grid.occupied = torch.rand(2, 8, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.5
    return grid


def field(positions, directions):
    """Clear, thin and thick places; colors that differ with the direction, in four channels."""
    densities = (40 * (4 * positions.sum(-1)).sin()).clamp(min=0)
    return densities, torch.cat([positions.cos(), directions[:, :1]], 1)


# What rounds are told.
CASES: dict[str, dict[str, Any]] = {
    "even steps": {"step": 0.02},
    "a sample at a time": {"step": 0.05, "round_samples": 1},
    "few steps": {"step": 0.02, "max_steps": 10, "round_samples": 3},
    "a cone that stops growing": {"step": 0.01, "cone_angle": 0.05, "max_step": 0.06, "near": 0.1},
    "a scene": {"step": 0.02, "scene_box": (-0.7, -0.8, 0.1, 0.4, 0.9, 1.3), "far": 1.5},
    "rays that end early": {"step": 0.02, "threshold": 0.3},
    "nothing ends": {"step": 0.02, "threshold": 0.0},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rounds_see_what_one_pass_sees(engine, case):
    origins, directions = some_rays()
    options = {"jitter": torch.rand(len(origins), dtype=torch.float64), **case}
    background = torch.rand(4, dtype=torch.float64)
    rendered = render_in_rounds(origins, directions, a_grid(), field, background=background, engine=engine, **options)
    threshold = options.pop("threshold", 1e-4)
    options.pop("round_samples", None)
    samples = ts.render.march(origins, directions, a_grid(), engine=engine, **options)
    index = samples.ray_index.long()
    densities, colors = field(origins[index] + samples.t[:, None] * directions[index], directions[index])
    path = (samples.t, samples.steps, samples.rays)
    twin = reference.composite(densities, colors, *path, background=background, threshold=threshold)
    assert (twin.opacity > 0.1).sum() > 20
    for name in rendered._fields:
        torch.testing.assert_close(getattr(rendered, name), getattr(twin, name), rtol=1e-9, atol=1e-10)


def test_the_field_is_evaluated_less_if_rays_end_early(engine):
    origins, directions = some_rays()
    asked = []

    def wall(positions, directions):
        asked.append(len(positions))
        return torch.full_like(positions[:, 0], 1e4), torch.ones_like(positions)

    options: dict[str, Any] = {"step": 0.02, "engine": engine}
    whole = ts.render.march(origins, directions, a_grid(), **options)
    render_in_rounds(origins, directions, a_grid(), wall, round_samples=2, **options)
    assert sum(asked) < 0.1 * len(whole.t)
    assert len(asked) == 1, "all rays end in the first round"


def test_rays_that_are_left_are_given_more_samples(engine):
    origins, directions = torch.tensor([[-1.0, 0.5, 0.5]]).repeat(40, 1), torch.tensor([[1.0, 0, 0]]).repeat(40, 1)
    directions[1:] *= -1  # all others look away
    asked = []

    def fog(positions, directions):
        asked.append(len(positions))
        return torch.zeros_like(positions[:, 0]), torch.ones_like(positions)

    render_in_rounds(origins, directions, CUBE, fog, step=0.01, round_samples=2, engine=engine)
    assert asked == [2, 40, 40, 18]


@pytest.mark.parametrize("count", [0, 3])
def test_no_ray_and_no_sample_see_the_background(engine, count):
    away = torch.full((count, 3), 5.0)
    rendered = render_in_rounds(away, away, CUBE, field, step=0.1, background=torch.arange(4.0), engine=engine)
    assert torch.equal(rendered.color, torch.arange(4.0).expand(count, 4))
    assert rendered.opacity.tolist() == rendered.depth.tolist() == [0.0] * count


def test_no_graph_is_kept():
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    rendered = render_in_rounds(*some_rays(9), BOX, lambda x, d: (weight * x[:, 0].abs(), weight * x), step=0.1)
    assert not rendered.color.requires_grad and rendered.color.any()


REFUSED = {
    "round_samples": ({"round_samples": 0}, ts.ArgumentError, "`round_samples` is out of range in render_in_rounds"),
    "threshold": ({"threshold": 2.0}, ts.ArgumentError, "`threshold` is out of range in render_in_rounds"),
    "max_steps": ({"max_steps": 0}, ts.ArgumentError, "`max_steps` is out of range"),
    "field": ({"field": lambda x, d: (x, x)}, ts.ShapeError, "`field` of render_in_rounds returned a wrong shape"),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    options, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        render_in_rounds(*some_rays(3), BOX, **{"field": field, "step": 0.1, **options})
