"""Marching with `sigma_fn` or `alpha_fn`: which samples stay, against a loop over all samples."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tinsmith as ts
from tinsmith.render import march

BOX = (-1.0, -0.5, 0.25, 1.0, 0.75, 2.0)


def some_rays():
    generator = torch.Generator().manual_seed(3)
    origins = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    return origins, torch.randn(40, 3, generator=generator, dtype=torch.float64)


def density(t):
    """Clear, thin and thick places, along a ray."""
    return (20 * (3 * t).sin()).clamp(min=0)


def kept_by_a_loop(whole, stop, least):
    """Return (ray, t) of the samples that stay."""
    kept, left, ray = [], 1.0, None
    for i, t, step in zip(whole.ray_index.tolist(), whole.t.tolist(), whole.steps.tolist(), strict=True):
        if i != ray:
            left, ray = 1.0, i
        alpha = 1 - math.exp(-float(density(torch.tensor(t, dtype=torch.float64))) * step)
        if left >= stop and alpha >= least:
            kept.append((i, t))
        left *= 1 - alpha
    return kept


@pytest.mark.parametrize("by", ["sigma_fn", "alpha_fn"])
@pytest.mark.parametrize(("stop", "least"), [(0.0, 0.0), (0.05, 0.0), (0.0, 0.11), (0.05, 0.11)])
def test_kept_samples_agree_with_a_loop(engine, by, stop, least):
    origins, directions = some_rays()
    whole = march(origins, directions, BOX, step=0.02, engine=engine)
    asked = []

    def look(samples):
        asked.append(samples)
        sigma = density(samples.t)
        return sigma[:, None] if by == "sigma_fn" else 1 - (-sigma * samples.steps).exp()

    options: dict[str, Any] = {by: look, "early_stop_eps": stop, "alpha_thre": least}
    ours = march(origins, directions, BOX, step=0.02, engine=engine, **options)
    (seen,) = asked
    assert torch.equal(seen.t, whole.t)
    expected = kept_by_a_loop(whole, stop, least)
    assert list(zip(ours.ray_index.tolist(), ours.t.tolist(), strict=True)) == expected
    assert (len(expected) < len(whole.t)) == (stop + least > 0) and expected
    assert torch.equal(ours.rays, ts.render.pack(ours.ray_index, 40))
    assert ours.total == len(ours.t) == len(ours.steps)


def test_user_functions_run_without_a_graph():
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)
    marched = march(*some_rays(), BOX, step=0.1, sigma_fn=lambda samples: weight * samples.t.abs())
    assert not marched.t.requires_grad


REFUSED = {
    "both": ({"sigma_fn": lambda s: s.t, "alpha_fn": lambda s: s.t}, ts.ArgumentError, "exclude each other"),
    "a capacity": ({"sigma_fn": lambda s: s.t, "capacity": 9}, ts.ArgumentError, "Leave `capacity` out"),
    "a shape": ({"alpha_fn": lambda s: s.t[1:]}, ts.ShapeError, "`alpha_fn` of `march` returned a wrong shape"),
    "alpha_thre": ({"alpha_thre": 2.0}, ts.ArgumentError, "`alpha_thre` is out of range"),
    "early_stop_eps": ({"early_stop_eps": -1.0}, ts.ArgumentError, "`early_stop_eps` is out of range"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    options, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        march(*some_rays(), BOX, step=0.1, **options)
