"""Penalties against their twins: values and gradients."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from support.packed import COUNTS, draw_samples, make_rays
from tinsmith import reference, render

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def weighted(rays, dtype=torch.float64):
    """Return weights, t and steps of random samples."""
    densities, colors, t, steps = draw_samples(rays, dtype=dtype, dense=0.3)
    return reference.composite(densities, colors, t, steps, rays).weights, t, steps


def assert_agrees(ours, twin, given):
    results = []
    for function in (ours, twin):
        leaves = [x.clone().requires_grad_() for x in given]
        y = function(*leaves)
        results.append((y, *torch.autograd.grad((y * torch.arange(1, len(y) + 1)).sum(), leaves)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_distortion_agrees_with_the_twin(engine, counts):
    rays = make_rays(counts, gap=1)
    assert_agrees(
        lambda *given: render.distortion_loss(*given, rays, engine=engine),
        lambda *given: reference.distortion_loss(*given, rays),
        weighted(rays),
    )


def test_far_away_distortion_keeps_its_digits_in_float32(engine):
    rays = make_rays([64])
    weights, t, steps = weighted(rays)
    t = t.float().double() * 0.01 + 1000
    far = [x.float() for x in (weights, t, steps * 0.01)]
    expected = reference.distortion_loss(*(x.double() for x in far), rays)
    torch.testing.assert_close(render.distortion_loss(*far, rays, engine=engine).double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_entropy_agrees_with_the_twin(engine, counts):
    rays = make_rays(counts, gap=1)
    weights, *_ = weighted(rays)
    weights[1:3] *= 1e-12  # so faint that their logarithm is that of 1e-10
    assert_agrees(
        lambda w: render.entropy_penalty(w, rays, engine=engine),
        lambda w: reference.entropy_penalty(w, rays, faintest=1e-3),
        [weights],
    )


def test_a_faint_ray_has_no_entropy(engine):
    weights = torch.tensor([0.25, 0.25, 1e-4, 1e-4], requires_grad=True)
    entropies = render.entropy_penalty(weights, make_rays([2, 2]), engine=engine)
    torch.testing.assert_close(entropies, torch.tensor([2.0, 1.0]).log())
    assert (torch.autograd.grad(entropies[1], weights)[0] == 0).all()


def test_opacity_is_least_at_both_ends():
    opacity = torch.tensor([0.0, 1e-12, 0.2, 0.7, 1.0], dtype=torch.float64, requires_grad=True)
    penalties = render.opacity_penalty(opacity)
    torch.testing.assert_close(penalties, reference.opacity_penalty(opacity))
    torch.testing.assert_close(penalties[2:], torch.special.entr(opacity)[2:])
    assert penalties[0] == penalties[4] == 0 and (penalties >= 0).all()
    assert torch.autograd.grad(penalties.sum(), opacity)[0].isfinite().all()


@pytest.mark.parametrize("name", ["distortion_loss", "entropy_penalty"])
def test_first_and_second_derivatives(engine, name):
    rays = make_rays([3, 0, 4])
    given = weighted(rays)[: 1 if name == "entropy_penalty" else 3]
    leaves = [(x + 0.05).requires_grad_() for x in given]

    def function(*given):
        return getattr(render, name)(*given, rays, engine=engine)

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


def test_compiled_and_transformed(engine):
    rays = make_rays([3, 0, 4])
    weights, t, steps = weighted(rays)

    def loss(weights):
        spread = render.distortion_loss(weights, t, steps, rays, engine=engine)
        return (spread + render.entropy_penalty(weights, rays, engine=engine)).sum()

    leaf = weights.clone().requires_grad_()
    expected = torch.autograd.grad(loss(leaf), leaf)[0]
    torch.compile(loss, fullgraph=True, backend="aot_eager")(leaf).backward()
    torch.testing.assert_close(leaf.grad, expected, **CLOSE)
    both = torch.func.vmap(torch.func.grad(loss))(torch.stack([weights, weights]))
    torch.testing.assert_close(both[1], expected, **CLOSE)


REFUSALS = {
    "sizes": (lambda w, r: render.distortion_loss(w, w[1:], w, r), ts.ShapeError, r"t        \[s\] = \(2,\)"),
    "dtypes": (lambda w, r: render.distortion_loss(w, w, w.double(), r), ts.DtypeError, "steps    torch.float64"),
    "outside": (lambda w, r: render.entropy_penalty(w, r + 1), ts.ShapeError, "`entropy_penalty` points outside"),
    "a list": (lambda w, r: render.entropy_penalty([1.0], r), ts.ArgumentError, "`weights` of `entropy_penalty`"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_invalid_arguments_are_refused(case):
    call, error, words = case
    with pytest.raises(error, match=words):
        call(torch.rand(3), make_rays([3]))
