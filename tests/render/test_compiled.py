"""A compiled step of several operations, built while it is traced, with other sizes each time."""

from __future__ import annotations

import pytest
import torch

from support.packed import draw_samples, make_rays
from tinsmith.render import accumulate, composite, composite_alphas, exclusive_sum

CHANNELS = 11  # as no other test has: nothing of it is built yet


def test_many_sizes_of_a_step(engine):
    def step(densities, colors, t, steps, rays):
        seen = composite(densities, colors[:, :7], t, steps, rays, threshold=1e-3, engine=engine)
        features = accumulate(seen.weights, colors, rays, engine=engine)
        return (seen.color**2).sum() + (features**2).sum() + seen.depth.sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for counts in ([3, 0, 4], [5, 6, 7], [2, 9, 1, 1]):
        rays = make_rays(counts)
        samples = [x.requires_grad_() for x in draw_samples(rays, channels=CHANNELS)]
        slopes = torch.autograd.grad(compiled(*samples, rays), samples)
        expected = torch.autograd.grad(step(*samples, rays), samples)
        for slope, plain in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope, plain, rtol=1e-9, atol=1e-10)


@pytest.mark.costly
def test_many_numbers_of_channels(engine):
    """torch.compile takes a number that changes for a symbol; kernels are built for each."""
    rays = make_rays([3, 0, 4])

    def step(densities, colors, t, steps):
        seen = composite(densities, colors, t, steps, rays, engine=engine)
        of_alphas = composite_alphas(densities / 99, colors, t, rays, engine=engine)
        sums = exclusive_sum(colors, rays, engine=engine) + accumulate(seen.weights, colors, rays, engine=engine)[0]
        return (seen.color * of_alphas.color).sum() + sums.square().sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for channels in (2, 3, 17):
        samples = [x.requires_grad_() for x in draw_samples(rays, channels=channels)]
        gradients = torch.autograd.grad(compiled(*samples), samples)
        expected = torch.autograd.grad(step(*samples), samples)
        for slope, plain in zip(gradients, expected, strict=True):
            torch.testing.assert_close(slope, plain, rtol=1e-9, atol=1e-10)
