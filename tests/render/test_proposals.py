"""Samples by proposals, against the same hierarchy in plain torch: values, and the gradients of proposals."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from tinsmith import reference, render

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
NEAR, FAR = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64), torch.tensor([4.0, 3.0, 9.0], dtype=torch.float64)


def bump(scale):
    """Make a proposal that is denser about t = 2."""
    return lambda starts, ends: scale * torch.exp(-(((starts + ends) / 2 - 2) ** 2))


def proposed_in_torch(scale, spacing, offsets, nears=NEAR, fars=FAR):
    """Return edges, shares, and of each level its shares and cdfs, as lists of rays."""
    rays = []
    for near, far, offset in zip(nears, fars, offsets.tolist(), strict=True):
        shares = cdfs = torch.tensor([0.0, 1.0], dtype=torch.float64)
        levels = []
        for count in (16, 8, 5):
            shares, _ = reference.importance_sampling(shares, cdfs.detach(), count, offset)
            edges = near + shares * (far - near)
            if spacing == "lindisp":
                edges = 1 / (1 / near + shares * (1 / far - 1 / near))
            if count > 5:
                light = torch.exp(-(bump(scale)(edges[:-1], edges[1:]) * edges.diff()).cumsum(0)[:-1])
                cdfs = torch.cat([light.new_zeros(1), 1 - light, light.new_ones(1)])
                levels.append((shares, cdfs))
        rays.append((edges, shares, levels))
    return rays


@pytest.mark.parametrize("spacing", ["uniform", "lindisp"])
def test_samples_and_gradients_agree_with_plain_torch(engine, spacing):
    offsets = torch.rand(3, dtype=torch.float64)
    scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    samples = render.sample_proposals(
        [bump(scale)] * 2, [16, 8], 5, n_rays=3, near=NEAR, far=FAR, spacing=spacing, jitter=offsets, engine=engine
    )
    weights = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 5
    loss = samples.loss(weights)
    rays = proposed_in_torch(scale, spacing, offsets)
    for i, (edges, shares, levels) in enumerate(rays):
        torch.testing.assert_close((samples.edges[i], samples.shares[i]), (edges, shares), **CLOSE)
        for (ours, cdfs), (theirs, other_cdfs) in zip(samples.levels, levels, strict=True):
            torch.testing.assert_close((ours[i], cdfs[i]), (theirs, other_cdfs), **CLOSE)
    expected = losses_in_torch(rays, weights)
    torch.testing.assert_close(loss, expected, **CLOSE)
    ours, twin = (torch.autograd.grad(one.sum(), scale)[0] for one in (loss, expected))
    assert ours != 0
    torch.testing.assert_close(ours, twin, **CLOSE)


def losses_in_torch(rays, weights):
    """Compute losses (n) from the result of `proposed_in_torch` and the weights (n, m) of the last samples."""
    losses = []
    for (_, shares, levels), row in zip(rays, weights, strict=True):
        own = torch.cat([row.new_zeros(1), row.cumsum(0)[:-1], row.new_ones(1)])
        losses.append(sum(reference.proposal_loss(shares, own, *level) for level in levels))
    return torch.stack(losses)


def step_of_training(engine):
    """Return a function that sums the loss of a scale, ends of rays and offsets; weights follow from the samples."""

    def loss(scale, near, far, offsets):
        samples = render.sample_proposals(
            [bump(scale)] * 2, [16, 8], 5, n_rays=len(near), near=near, far=far, jitter=offsets, engine=engine
        )
        return samples.loss(weights_at(samples.t)).sum()

    return loss


def weights_at(t):
    return 0.1 + 0.05 * t.sin()  # of five samples less than 1, up to which a ray counts


def slope_in_torch(scale, near, far, offsets):
    """Compute the gradient of `step_of_training` by the scale."""
    scale = scale.clone().requires_grad_()
    rays = proposed_in_torch(scale, "lindisp", offsets, near, far)
    weights = torch.stack([weights_at((edges[1:] + edges[:-1]) / 2) for edges, *_ in rays])
    return torch.autograd.grad(losses_in_torch(rays, weights).sum(), scale)[0]


@pytest.mark.costly
def test_compiled_it_stays_one_graph_for_any_number_of_rays(engine):
    compiled = torch.compile(step_of_training(engine), fullgraph=True, backend="aot_eager")
    for count in (3, 2, 5):
        scale = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        near = 0.5 + torch.rand(count, dtype=torch.float64)
        rays = near, 4 * near, torch.rand(count, dtype=torch.float64)
        compiled(scale, *rays).backward()
        torch.testing.assert_close(scale.grad, slope_in_torch(scale.detach(), *rays), **CLOSE)


@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=pytest.mark.costly)])
def test_under_func_grad_and_vmap(engine, is_compiled):
    near = 0.5 + torch.rand(2, 3, dtype=torch.float64)
    batch = torch.tensor([0.7, 2.0], dtype=torch.float64), near, 4 * near, torch.rand(2, 3, dtype=torch.float64)
    slopes = torch.func.vmap(torch.func.grad(step_of_training(engine)))
    if is_compiled:
        slopes = torch.compile(slopes, fullgraph=True, backend="aot_eager")
    expected = torch.stack([slope_in_torch(*one) for one in zip(*batch, strict=True)])
    torch.testing.assert_close(slopes(*batch), expected, **CLOSE)


def test_each_entry_of_a_batch_draws_its_own_offsets(engine):
    def sampled(near):
        return render.sample_proposals([], [], 4, n_rays=2, near=near, far=9.0, jitter=True, engine=engine).t

    t = torch.func.vmap(sampled, randomness="different")(torch.ones(3, 2))
    assert len(t[..., 0].unique()) == 6


def test_samples_lie_between_near_and_far(engine):
    samples = render.sample_proposals(
        [bump(9.0)], [32], 8, n_rays=3, near=NEAR, far=FAR, jitter=torch.Generator().manual_seed(0), engine=engine
    )
    assert (samples.t > NEAR[:, None]).all() and (samples.t < FAR[:, None]).all() and (samples.steps > 0).all()
    colors = torch.rand(3, 8, 3, dtype=torch.float64)
    seen = render.composite(bump(9.0)(samples.t, samples.t), colors, samples.t, samples.steps, engine=engine)
    assert seen.weights.shape == samples.t.shape
    assert samples.loss(seen.weights).shape == (3,)


def test_training_moves_a_proposal_to_where_the_weights_are(engine):
    heights = torch.zeros(8, requires_grad=True)
    optimizer = torch.optim.Adam([heights], lr=0.2)

    def proposal(starts, ends):
        return torch.nn.functional.softplus(heights)[((starts + ends) * 4).long().clamp(max=7)]

    def sample():
        return render.sample_proposals(
            [proposal], [8], 16, n_rays=1, near=0.0, far=1.0, spacing="uniform", engine=engine
        )

    def is_inside(samples):
        return (samples.t > 0.5) & (samples.t < 0.625)  # where there is a wall

    before = int(is_inside(sample()).sum())
    for _ in range(60):
        samples = sample()
        weights = is_inside(samples) / is_inside(samples).sum().clamp(min=1)
        optimizer.zero_grad()
        samples.loss(weights).sum().backward()
        optimizer.step()
    assert int(is_inside(sample()).sum()) >= 2 * before > 0


def test_without_proposals_a_ray_is_cut_evenly(engine):
    given = {"n_rays": 2, "near": 1.0, "far": 3.0, "spacing": "uniform", "engine": engine}
    samples = render.sample_proposals([], [], 4, **given)
    torch.testing.assert_close(samples.edges[0], torch.linspace(1, 3, 5))
    torch.testing.assert_close(samples.t[1], torch.tensor([1.25, 1.75, 2.25, 2.75]))
    assert (samples.loss(torch.rand(2, 4)) == 0).all()


EVEN = {"n_rays": 1, "near": 1.0, "far": 2.0}
REFUSALS = {
    "spacing": (lambda: render.sample_proposals([], [], 4, **EVEN, spacing="log"), ts.ArgumentError, "'lindisp'"),
    "numbers": (lambda: render.sample_proposals([], [3], 4, **EVEN), ts.ArgumentError, "proposal_samples +1"),
    "near": (lambda: render.sample_proposals([], [], 4, **EVEN | {"near": 0.0}), ts.ArgumentError, "positive number"),
    "shape": (
        lambda: render.sample_proposals([lambda starts, ends: starts[:, :1]], [3], 4, **EVEN),
        ts.ShapeError,
        r"expected +\(1, 3\)",
    ),
    "weights": (
        lambda: render.sample_proposals([], [], 4, **EVEN).loss(torch.rand(1, 5)),
        ts.ShapeError,
        r"got +\(1, 5\)",
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_invalid_arguments_are_refused(case):
    call, error, words = case
    with pytest.raises(error, match=words):
        call()
