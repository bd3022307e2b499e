"""A compiled step of several operations, built while it is traced, and of another number of samples each time."""

from __future__ import annotations

import torch

from support.packed import rays_of, samples_on
from tinsmith.render import accumulate, composite

CHANNELS = 11  # as no other test has: nothing of it is built yet


def test_many_sizes_of_a_step(engine):
    def step(densities, colours, t, steps, rays):
        seen = composite(densities, colours[:, :7], t, steps, rays, threshold=1e-3, engine=engine)
        features = accumulate(seen.weights, colours, rays, engine=engine)
        return (seen.colour**2).sum() + (features**2).sum() + seen.depth.sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for counts in ([3, 0, 4], [5, 6, 7], [2, 9, 1, 1]):
        rays = rays_of(counts)
        samples = [x.requires_grad_() for x in samples_on(rays, channels=CHANNELS)]
        slopes = torch.autograd.grad(compiled(*samples, rays), samples)
        expected = torch.autograd.grad(step(*samples, rays), samples)
        for slope, plain in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope, plain, rtol=1e-9, atol=1e-10)
