"""The twin of compositing, against what is known of it: uniform fog, walls, and the sums of its weights."""

import math

import torch

from support.packed import draw_samples, make_rays
from tinsmith import reference


def test_uniform_fog_hides_as_the_law_of_beer_and_lambert_says():
    density, length, n = 0.7, 3.0, 50
    steps = torch.full((1, n), length / n, dtype=torch.float64)
    t = steps.cumsum(1)
    rendered = reference.composite(torch.full_like(steps, density), torch.ones(1, n, 1).double(), t, steps)
    assert math.isclose(rendered.opacity.item(), 1 - math.exp(-density * length), rel_tol=1e-12)
    assert math.isclose(rendered.color.item(), rendered.opacity.item(), rel_tol=1e-12)


def test_behind_a_wall_nothing_is_seen():
    densities = torch.tensor([[0.0, 1e9, 5.0]])
    colors, t = torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[1.0, 2.0, 3.0]])
    rendered = reference.composite(densities, colors, t, torch.ones(1, 3), background=torch.tensor([9.0]))
    assert rendered.weights.tolist() == [[0, 1, 0]]
    assert (rendered.color.item(), rendered.opacity.item(), rendered.depth.item()) == (2, 1, 2)


def test_dense_and_packed_are_the_same():
    rays = make_rays([4, 4, 4])
    packed = [x[:12] for x in draw_samples(rays)]
    dense = [x.view(3, 4, *x.shape[1:]) for x in packed]
    background = torch.rand(3, 3, dtype=torch.float64)
    one = reference.composite(*packed, rays, background=background, threshold=0.2)
    other = reference.composite(*dense, background=background, threshold=0.2)
    for x, y in zip(one, other, strict=True):
        torch.testing.assert_close(x, y.view(x.shape))


def test_a_ray_ends_below_the_threshold_and_an_empty_one_shows_the_background():
    densities = torch.full((4,), math.log(2.0))  # each sample hides half of what is left
    rays = torch.tensor([[0, 4], [4, 0]])
    rendered = reference.composite(
        densities, torch.ones(4, 1), torch.ones(4), torch.ones(4), rays, background=torch.ones(1) * 8, threshold=0.3
    )
    torch.testing.assert_close(rendered.weights, torch.tensor([0.5, 0.25, 0, 0]))
    torch.testing.assert_close(rendered.color[:, 0], torch.tensor([0.75 + 0.25 * 8, 8]))
