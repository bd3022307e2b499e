"""Packed samples for tests: rays of all kinds of lengths, and random samples on them."""

from __future__ import annotations

import torch

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
COUNTS = {
    "ragged": [3, 0, 7, 1, 5],
    "one sample": [1],
    "all empty": [0, 0, 0],
    "many": [4] * 20 + [0] * 3 + [11],
}
"""Samples of each ray."""


def make_rays(counts, *, gap: int = 0) -> torch.Tensor:
    """Make `rays` with these counts, and samples between rays that no ray names."""
    rows, start = [], gap
    for count in counts:
        rows.append([start, count])
        start += count + gap
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, 2)


def count_samples(rays) -> int:
    """Return the number of samples up to the end of the last ray, and two more that no ray names."""
    return int(rays.sum(1).max()) + 2 if len(rays) else 2


def draw_samples(rays, *, channels: int = 3, dtype=torch.float64, dense: float = 1.5):
    """Draw densities, colors, t (ascending along a ray) and steps; `dense` is the mean of density times step."""
    s = count_samples(rays)
    steps = 0.1 + 0.2 * torch.rand(s, dtype=dtype)
    t = 2 + steps.cumsum(0) - steps / 2
    densities = dense / 0.2 * 2 * torch.rand(s, dtype=dtype)
    densities[torch.rand(s) < 0.2] = 0
    return densities, torch.randn(s, channels, dtype=dtype), t, steps


def compute_outputs_and_gradients(function, given, rays, cotangents, **options):
    """Composite these samples with the background, which is the last; return the outputs, and the gradients of all."""
    leaves = [tensor.clone().requires_grad_() for tensor in given]
    *samples, background = leaves
    outputs = function(*samples, rays, background=background, **options)
    loss = sum((y * c).sum() for y, c in zip(outputs, cotangents, strict=True))
    return outputs, torch.autograd.grad(loss, leaves)


def assert_composites_agree(function, twin, names, engine, given, rays, **options):
    """Assert that all outputs and gradients in all of `names` agree with the twin's. Return the outputs."""
    with torch.no_grad():
        cotangents = [torch.randn_like(y) for y in twin(*given[:-1], rays, background=given[-1])]
    ours, slopes = compute_outputs_and_gradients(function, given, rays, cotangents, engine=engine, **options)
    twins, expected = compute_outputs_and_gradients(twin, given, rays, cotangents, **options)
    for name, y, same in zip(ours._fields, ours, twins, strict=True):
        torch.testing.assert_close(y, same, **CLOSE, msg=lambda words, name=name: f"{name}: {words}")
    for name, slope, same in zip(names, slopes, expected, strict=True):
        torch.testing.assert_close(slope, same, **CLOSE, msg=lambda words, name=name: f"gradient of {name}: {words}")
    return ours
