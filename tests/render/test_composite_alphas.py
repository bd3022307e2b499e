"""Compositing of alphas against its twin: values, and the gradients of all outputs in all inputs."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from support.packed import CLOSE, COUNTS, assert_composites_agree, draw_samples, make_rays
from tinsmith import reference
from tinsmith.render import composite, composite_alphas

NAMES = ("alphas", "colors", "t", "background")


def given_on(rays, *, channels=3):
    """Return alphas, some of which are 0 and 1, colors, t and a background for each ray."""
    _, colors, t, _ = draw_samples(rays, channels=channels)
    alphas = torch.rand(len(t), dtype=torch.float64)
    alphas[torch.rand(len(t)) < 0.15] = 0.0
    alphas[torch.rand(len(t)) < 0.15] = 1.0
    return alphas, colors, t, torch.rand(len(rays), channels, dtype=torch.float64)


def assert_agrees(engine, given, rays, **options):
    return assert_composites_agree(composite_alphas, reference.composite_alphas, NAMES, engine, given, rays, **options)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("threshold", [0.0, 0.05])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_packed_samples_agree_with_the_twin(engine, counts, threshold):
    rays = make_rays(counts, gap=1)
    ours = assert_agrees(engine, given_on(rays), rays, threshold=threshold)
    assert ours.weights[0] == 0 == ours.weights[-1], "samples of no ray"


@pytest.mark.parametrize("shape", [(5, 8), (3, 0)], ids=str)
def test_dense_samples_agree_with_the_twin(engine, shape):
    n, k = shape
    *samples, background = given_on(make_rays([k] * n))
    dense = [x[: n * k].reshape(n, k, *x.shape[1:]) for x in samples]
    ours = assert_agrees(engine, (*dense, background), None, threshold=0.1)
    assert ours.color.shape == (n, 3) and ours.weights.shape == (n, k)


@pytest.mark.parametrize("channels", [1, 17])
def test_any_number_of_channels_agrees_with_the_twin(engine, channels):
    rays = make_rays([3, 0, 6])
    assert_agrees(engine, given_on(rays, channels=channels), rays)


def test_alphas_of_densities_are_seen_as_the_densities(engine):
    rays = make_rays([3, 0, 7])
    densities, colors, t, steps = draw_samples(rays)
    alphas = -torch.expm1(-densities * steps)
    ours = composite_alphas(alphas, colors, t, rays, threshold=0.1, engine=engine)
    for y, same in zip(ours, composite(densities, colors, t, steps, rays, threshold=0.1, engine=engine), strict=True):
        torch.testing.assert_close(y, same, **CLOSE)


def test_first_and_second_derivatives(engine):
    """Not at an alpha of 1: beyond it what shines through is negative, and the ray ends, so that it is a kink."""
    rays = make_rays([3, 0, 2])
    alphas = torch.tensor([0.3, 0.9, 0.4, 0.0, 0.7, 0.5, 0.5], dtype=torch.float64)
    _, colors, t, _ = draw_samples(rays, channels=2)
    leaves = [x.clone().requires_grad_() for x in (alphas, colors, t)]

    def outputs(*samples):
        return composite_alphas(*samples, rays, engine=engine)

    assert torch.autograd.gradcheck(outputs, leaves)
    assert torch.autograd.gradgradcheck(outputs, leaves)


def test_second_derivatives_at_alphas_of_0_and_1_are_those_of_the_twin(engine):
    rays = make_rays([5, 0, 4])
    alphas, colors, t, background = given_on(rays)
    alphas[1], alphas[3] = 1.0, 0.0
    factors, seconds = torch.randn(len(alphas), dtype=torch.float64), []
    for function, options in ((composite_alphas, {"engine": engine}), (reference.composite_alphas, {})):
        leaf = alphas.clone().requires_grad_()
        color = function(leaf, colors, t, rays, background=background, **options).color
        (slope,) = torch.autograd.grad(color.square().sum(), leaf, create_graph=True)
        seconds.append(torch.autograd.grad((slope * factors).sum(), leaf)[0])
    torch.testing.assert_close(*seconds, **CLOSE)


def test_it_compiles_in_one_graph(engine):
    rays = make_rays([3, 0, 6])
    samples = given_on(rays)[:3]

    def light(*samples):
        return composite_alphas(*samples, rays, threshold=1e-3, engine=engine).color.square().sum()

    gradients = []
    for function in (light, torch.compile(light, fullgraph=True, backend="aot_eager")):
        leaves = [x.clone().requires_grad_() for x in samples]
        gradients.append(torch.autograd.grad(function(*leaves), leaves))
    for plain, compiled in zip(*gradients, strict=True):
        torch.testing.assert_close(compiled, plain, **CLOSE)


@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=pytest.mark.costly)])
def test_under_func_grad_and_vmap(engine, is_compiled):
    rays = make_rays([3, 0, 6])
    batch = [torch.stack(pair) for pair in zip(*(given_on(rays)[:3] for _ in range(2)), strict=True)]

    def loss_of(function, **options):
        def loss(alphas, colors, t):
            seen = function(alphas, colors, t, rays, threshold=0.05, **options)
            return seen.color.square().sum() + (seen.depth * seen.opacity).sum() + seen.weights.square().sum()

        return loss

    slopes = torch.func.vmap(torch.func.grad(loss_of(composite_alphas, engine=engine), argnums=(0, 1, 2)))
    if is_compiled:
        slopes = torch.compile(slopes, fullgraph=True, backend="aot_eager")
    gradients = slopes(*batch)
    for j in range(2):
        leaves = [x[j].clone().requires_grad_() for x in batch]
        expected = torch.autograd.grad(loss_of(reference.composite_alphas)(*leaves), leaves)
        for slope, twin in zip(gradients, expected, strict=True):
            torch.testing.assert_close(slope[j], twin, **CLOSE)


def test_invalid_arguments_are_refused():
    with pytest.raises(
        ts.ShapeError, match=r"arguments of `composite_alphas` have the wrong shapes\n *alphas .*\[n, k\]"
    ):
        composite_alphas(torch.rand(3), torch.rand(3, 1), torch.rand(3))
    with pytest.raises(ts.ShapeError, match=r"`composite_alphas` do not fit each other(?s:.)*t  *\[s\] = \(2,\)"):
        composite_alphas(torch.rand(3), torch.rand(3, 1), torch.rand(2), make_rays([3]))
    with pytest.raises(ts.DtypeError, match="composite_alphas"):
        composite_alphas(torch.rand(3), torch.rand(3, 1).double(), torch.rand(3), make_rays([3]))


def test_remedies_that_help():
    t, rays = torch.ones(4), torch.tensor([[0, 4]], dtype=torch.int32)
    with pytest.raises(ts.ShapeError, match=r"colors +\[s, c\] = \(1, 3\)(?s:.)*Broadcast with `.expand`"):
        ts.render.composite(t, torch.ones(1, 3), t, t, rays)
    with pytest.raises(ts.ShapeError, match=r"colors +\[s, c\] = \(3, 3\)") as refused:
        ts.render.composite(t, torch.ones(3, 3), t, t, rays)
    assert "expand" not in str(refused.value)


def test_a_threshold_that_is_no_number():
    t, rays = torch.ones(4), torch.tensor([[0, 4]], dtype=torch.int32)
    with pytest.raises(ts.ArgumentError, match="`threshold` of `composite` is NaN"):
        ts.render.composite(t, torch.ones(4, 3), t, t, rays, threshold=float("nan"))
