"""The twin of direct volume rendering against what is known otherwise: torch's own sampling, and formulas."""

from __future__ import annotations

import math

import pytest
import torch

from tinsmith.reference import Shading, volume_render

CUBE = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
BOX = [-1.0, 0.5, 2.0, 2.0, 1.5, 4.0]
CHORD = math.sqrt(3)


def one_ray(origin, direction):
    return torch.tensor([origin], dtype=torch.float64), torch.tensor([direction], dtype=torch.float64)


def gray(densities, colors=None):
    """Make a table of densities, white or in the given colors."""
    density = torch.tensor(densities, dtype=torch.float64)
    color = torch.ones_like(density) if colors is None else torch.tensor(colors, dtype=torch.float64)
    return torch.stack([color, color, color, density], dim=-1)


def test_values_are_in_the_middles_of_cells():
    volume = torch.rand(4, 3, 5, dtype=torch.float64)
    low, high = torch.tensor(BOX, dtype=torch.float64).view(2, 3)
    for i, j, k in [(0, 0, 0), (3, 2, 4), (1, 1, 2)]:
        middle = low + (torch.tensor([i, j, k]) + 0.5) / torch.tensor(volume.shape) * (high - low)
        ray = one_ray(middle.tolist(), [1e-9, 0.0, 0.0])
        # One sample, which looks where the ray starts; dense, and as bright as the value.
        seen = volume_render(
            volume, gray([1e12, 1e12], [0.0, 1.0]), *ray, BOX, step=100, offsets=torch.zeros(1, dtype=torch.float64)
        )
        torch.testing.assert_close(seen.color[0, 0], volume[i, j, k])


def test_sampling_agrees_with_torch():
    volume = torch.rand(4, 3, 5, dtype=torch.float64)
    low, high = torch.tensor(BOX, dtype=torch.float64).view(2, 3)
    at = torch.rand(200, 3, dtype=torch.float64)
    grid = (2 * at - 1).flip(-1).view(1, -1, 1, 1, 3)
    expected = torch.nn.functional.grid_sample(volume[None, None], grid, align_corners=False, padding_mode="border")
    towards = torch.full((200, 3), 1e-3, dtype=torch.float64)
    start = torch.zeros(200, dtype=torch.float64)
    table = gray([1e12, 1e12], [0.0, 1.0])
    seen = volume_render(volume, table, low + at * (high - low), towards, BOX, step=100, offsets=start)
    torch.testing.assert_close(seen.color[:, 0], expected.flatten(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("step", [10.0, 0.3, 0.01])
def test_fog_hides_by_the_length_in_it(step):
    origins, directions = one_ray([-1.0, -1.0, -1.0], [2.0, 2.0, 2.0])
    seen = volume_render(torch.zeros(2, 2, 2).double(), gray([0.7]), origins, directions, CUBE, step=step)
    assert seen.opacity.item() == pytest.approx(1 - math.exp(-0.7 * CHORD), abs=1e-12)
    background = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    seen = volume_render(
        torch.zeros(2, 2, 2).double(), gray([0.7]), origins, directions, CUBE, step=step, background=background
    )
    expected = seen.opacity * torch.ones(3) + (1 - seen.opacity) * background
    torch.testing.assert_close(seen.color[0], expected)


def test_depth_counts_in_directions_and_is_not_divided():
    origins, directions = one_ray([-1.0, 0.5, 0.5], [2.0, 0.0, 0.0])
    seen = volume_render(torch.zeros(1, 1, 1).double(), gray([3.0]), origins, directions, CUBE, step=1e-4)
    far_off = lambda t: math.exp(-3.0 * (2 * t - 1)) * (t + 1 / 6)  # noqa: E731  # of the integral of t
    assert seen.depth.item() == pytest.approx(far_off(0.5) - far_off(1.0), abs=1e-6)


@pytest.mark.parametrize(
    ("origin", "direction", "length"),
    [
        ([0.5, 0.5, 0.5], [0.0, 0.0, 3.0], 0.5),
        ([0.5, 0.5, 2.0], [0.0, 0.0, -3.0], 1.0),
        ([0.5, 0.5, 2.0], [0.0, 0.0, 3.0], 0.0),
        ([1.5, 0.5, 2.0], [0.0, 0.0, -3.0], 0.0),
        ([-1.0, 0.5, 0.5], [1.0, 3.0, 0.0], 0.0),
        ([0.5, 0.5, 0.5], [0.0, 0.0, 0.0], 0.0),
    ],
    ids=["inside", "parallel", "behind", "parallel, beside", "past", "nowhere"],
)
def test_the_box_is_met_where_it_is(origin, direction, length):
    seen = volume_render(torch.zeros(2, 2, 2).double(), gray([0.7]), *one_ray(origin, direction), CUBE, step=0.1)
    assert seen.opacity.item() == pytest.approx(1 - math.exp(-0.7 * length), abs=1e-12)


def test_a_plane_is_lit_by_the_angle_to_it():
    """A volume that grows along x, dense: Blinn and Phong's formula for the first sample."""
    volume = torch.linspace(0.05, 0.95, 10, dtype=torch.float64)[:, None, None].expand(10, 10, 10)
    shading = Shading(light=(-1.0, 0.0, 1.0), ambient=0.2, diffuse=0.5, specular=0.4, shininess=7.0, softness=1e-9)
    towards = [1.0, 0.25, 0.0]
    ray = one_ray([-0.55, 0.3, 0.5], towards)
    table = gray([1e12, 1e12], [0.6, 0.6])
    start = torch.full((1,), 0.5, dtype=torch.float64)
    seen = volume_render(volume, table, *ray, CUBE, step=0.2, offsets=start, shading=shading)
    eye = -torch.tensor(towards) / math.hypot(*towards)
    half = torch.tensor([-1.0, 0.0, 1.0]) / math.sqrt(2) + eye
    expected = 0.6 * (0.2 + 0.5 / math.sqrt(2)) + 0.4 * (half[0].abs() / half.norm()) ** 7
    assert seen.color[0, 0].item() == pytest.approx(expected.item(), abs=1e-6)


def test_an_even_volume_is_seen_without_light():
    shading = Shading(ambient=0.25)
    ray = one_ray([-1.0, 0.5, 0.5], [1.0, 0.0, 0.0])
    seen = volume_render(torch.ones(3, 3, 3).double(), gray([1e12]), *ray, CUBE, step=0.2, shading=shading)
    assert seen.color[0, 0].item() == pytest.approx(0.25)
