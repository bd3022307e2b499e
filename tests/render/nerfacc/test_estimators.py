"""nerfacc's estimators: how they sample, learn, and are used in a training loop that was written for nerfacc."""

from __future__ import annotations

import pytest
import torch

from tinsmith import ArgumentError, ShapeError
from tinsmith.render import nerfacc

pytestmark = pytest.mark.thinned(2)

BOX = (-1.0, -1.0, -1.0, 1.0, 1.0, 1.0)


def in_ball(positions):
    return (positions.norm(dim=-1, keepdim=True) < 0.6).float()


def rays_to_the_middle(n):
    origins = 3 * torch.nn.functional.normalize(torch.randn(n, 3), dim=1)
    return origins, torch.nn.functional.normalize(0.3 * torch.randn(n, 3) - origins, dim=1)


def updated(engine, levels=1):
    estimator = nerfacc.OccGridEstimator(BOX, 8, levels, engine=engine)
    estimator.update_every_n_steps(step=0, occ_eval_fn=in_ball)
    return estimator


# OccGridEstimator -----------------------------------------------------------------------------
def test_the_buffers_are_those_of_nerfacc():
    estimator = nerfacc.OccGridEstimator(torch.tensor(BOX), [4, 3, 2], levels=2)
    shapes = {name: tuple(value.shape) for name, value in estimator.state_dict().items()}
    assert shapes == {"resolution": (3,), "aabbs": (2, 6), "occs": (48,), "binaries": (2, 4, 3, 2)}
    assert estimator.aabbs.tolist() == [list(BOX), [2 * side for side in BOX]]
    assert not estimator.binaries.any() and estimator.cells_per_lvl == 24
    other = nerfacc.OccGridEstimator(BOX, [4, 3, 2], levels=2)
    estimator.binaries = torch.rand(2, 4, 3, 2) < 0.5
    other.load_state_dict(estimator.state_dict())
    assert other.binaries.equal(estimator.binaries)


def test_updates():
    estimator = nerfacc.OccGridEstimator(BOX, 4, levels=2)

    def of_the_cell(positions):  # constant in each cell of level 0, and in each of level 1
        return (positions[:, :1] > 0).float()

    estimator.update_every_n_steps(step=3, occ_eval_fn=of_the_cell)
    assert not estimator.occs.any()
    estimator.update_every_n_steps(step=16, occ_eval_fn=of_the_cell)
    assert estimator.occs.view(2, 4, 4, 4)[:, :2].eq(0).all() and estimator.occs.view(2, 4, 4, 4)[:, 2:].eq(1).all()
    assert estimator.binaries.flatten().equal(estimator.occs > 0.01)
    estimator.update_every_n_steps(step=32, occ_eval_fn=lambda x: 0 * of_the_cell(x)[:, 0], ema_decay=0.5)
    assert estimator.occs.view(2, 4, 4, 4)[:, 2:].eq(0.5).all()
    # After the warmup: some cells, each decayed once.
    estimator.update_every_n_steps(step=256, occ_eval_fn=lambda x: 0 * of_the_cell(x), ema_decay=0.5)
    assert set(estimator.occs.unique().tolist()) == {0.0, 0.25, 0.5}
    estimator._update(step=0, occ_eval_fn=lambda x: 0.3 + 0 * of_the_cell(x), occ_thre=0.2)
    assert estimator.binaries.all()
    estimator.eval()
    with pytest.raises(ArgumentError, match="is updated in training only"):
        estimator.update_every_n_steps(step=0, occ_eval_fn=of_the_cell)


@pytest.mark.parametrize("has_bounds", [False, True])
def test_samples_are_those_of_the_traversal(engine, has_bounds):
    estimator = updated(engine, levels=2)
    origins, directions = rays_to_the_middle(40)
    bounds = {"t_min": 2 + torch.rand(40), "t_max": 3 + torch.rand(40)} if has_bounds else {}
    given = {"near_plane": 0.5, "far_plane": 4.5, "render_step_size": 0.05, **bounds}
    ray_indices, t_starts, t_ends = estimator.sampling(origins, directions, **given)
    near = torch.full((40,), 0.5).maximum(bounds.get("t_min", torch.zeros(40)))
    far = torch.full((40,), 4.5).minimum(bounds.get("t_max", torch.full((40,), 9.0)))
    intervals, samples, _ = nerfacc.traverse_grids(
        origins, directions, estimator.binaries, estimator.aabbs, near, far, step_size=0.05, engine=engine
    )
    assert ray_indices.equal(samples.ray_indices) and len(ray_indices) > 100
    assert t_starts.equal(intervals.vals[intervals.is_left]) and t_ends.equal(intervals.vals[intervals.is_right])
    shifted = estimator.sampling(origins, directions, stratified=True, **given)
    assert not shifted[1].equal(t_starts)
    cone = estimator.sampling(origins, directions, cone_angle=0.1, **given)
    torch.testing.assert_close(cone[2] - cone[1], (0.1 * cone[1]).clamp(min=0.05), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["sigma_fn", "alpha_fn"])
def test_samples_that_nobody_sees_are_dropped(engine, kind):
    estimator = updated(engine)
    origins, directions = rays_to_the_middle(20)
    given = {"render_step_size": 0.05}
    ray_indices, t_starts, t_ends = estimator.sampling(origins, directions, **given)
    sigmas = 30 * (torch.sin(50 * t_starts) + 1)
    measures = sigmas if kind == "sigma_fn" else 1 - torch.exp(-sigmas * (t_ends - t_starts))
    bounds = {"early_stop_eps": 0.1, "alpha_thre": 0.02}
    visible = nerfacc.render_visibility_from_density(
        t_starts, t_ends, sigmas, ray_indices=ray_indices, n_rays=20, engine=engine, **bounds
    )
    kept = estimator.sampling(origins, directions, **{kind: lambda *_: measures}, **given, **bounds)
    for ours, all_of_them in zip(kept, (ray_indices, t_starts, t_ends), strict=True):
        assert ours.equal(all_of_them[visible])
    assert 0 < len(kept[0]) < len(ray_indices)
    with pytest.raises(ShapeError, match=f"`{kind}` of `sampling` returned another shape"):
        estimator.sampling(origins, directions, **{kind: lambda *_: measures[:, None]}, **given, **bounds)


def test_cells_that_no_camera_sees_are_skipped():
    estimator = nerfacc.OccGridEstimator(BOX, 6)
    pose = torch.eye(4)[None]
    pose[0, 2, 3] = -2.0  # it looks along +z
    intrinsics = torch.tensor([[[40.0, 0.0, 32.0], [0.0, 40.0, 32.0], [0.0, 0.0, 1.0]]])
    estimator.mark_invisible_cells(intrinsics, pose, 64, 64, chunk=50)
    points = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 6)] * 3, indexing="ij"), -1).view(-1, 3)
    pixels = 40 * points[:, :2] / (points[:, 2:] + 2) + 32
    expected = ((pixels >= 0) & (pixels < 64)).all(1)
    assert (estimator.occs == 0).equal(expected) and 0 < expected.sum() < 216
    estimator.update_every_n_steps(step=0, occ_eval_fn=lambda x: torch.ones(len(x), 1))
    assert estimator.binaries.flatten().equal(expected)
    near = nerfacc.OccGridEstimator(BOX, 6)
    near.mark_invisible_cells(intrinsics, pose, 64, 64, near_plane=2.0)
    assert (near.occs == 0).equal(expected & (points[:, 2] >= 0))


OCCUPANCY_REFUSED = [
    (lambda: nerfacc.OccGridEstimator(BOX[:5]), ShapeError, "`roi_aabb` of an OccGridEstimator is not a box"),
    (lambda: nerfacc.OccGridEstimator(BOX, [4, 4]), ArgumentError, "`resolution` or `levels` of OccGridEstimator"),
    (lambda: nerfacc.OccGridEstimator(BOX, 4, 0), ArgumentError, "levels      0"),
    (
        lambda: nerfacc.OccGridEstimator(BOX, 2)._update(0, lambda x: x),
        ShapeError,
        "`occ_eval_fn` returned another shape\n  expected  (8, 1) or (8,)\n  got       (8, 3)",
    ),
    (
        lambda: nerfacc.OccGridEstimator(BOX, 2).mark_invisible_cells(torch.eye(3), torch.eye(4), 2, 2),
        ShapeError,
        "The cameras of `mark_invisible_cells` have the wrong shapes",
    ),
    (
        lambda: nerfacc.PropNetEstimator().sampling([], [3], 4, 1, 1.0, 2.0),
        ArgumentError,
        "needs a number of samples for each proposal",
    ),
    (
        lambda: nerfacc.PropNetEstimator().sampling([], [], 4, 1, 1.0, 2.0, "log"),
        ArgumentError,
        "expected  'uniform', 'lindisp'\n  got       'log'",
    ),
    (
        lambda: nerfacc.PropNetEstimator().sampling([], [], 4, 1, 0.0, 2.0),
        ArgumentError,
        "`near_plane` is out of range",
    ),
    (
        lambda: nerfacc.PropNetEstimator().sampling([lambda starts, ends: starts[..., None]], [3], 4, 1, 1.0, 2.0),
        ShapeError,
        "`prop_sigma_fns[0]` returned another shape",
    ),
    (
        lambda: nerfacc.PropNetEstimator().update_every_n_steps(torch.ones(1, 2), requires_grad=True),
        ArgumentError,
        "The PropNetEstimator has no optimizer, or nothing to train from\n  optimizer  NoneType\n  proposals  0",
    ),
]


@pytest.mark.parametrize(("make", "kind", "words"), OCCUPANCY_REFUSED)
def test_refused(make, kind, words):
    with pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)


# PropNetEstimator -----------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["uniform", "lindisp"])
def test_proposals_place_samples(engine, kind):
    """Where the one proposal has its density, between 2 and 3, nearly all samples are."""
    estimator = nerfacc.PropNetEstimator(engine=engine)

    def proposal(t_starts, t_ends):
        assert t_starts.shape == (5, 64) and not t_starts.requires_grad
        middles = (t_starts + t_ends) / 2
        return torch.where((middles > 2) & (middles < 3), 50.0, 0.0)

    t_starts, t_ends = estimator.sampling([proposal], [64], 16, 5, 1.0, 6.0, kind)
    assert t_starts.shape == t_ends.shape == (5, 16)
    assert t_starts[:, 1:].equal(t_ends[:, :-1])
    assert ((t_starts[:, 1:-1] > 1.8) & (t_ends[:, 1:-1] < 3.2)).all()
    even, ends = estimator.sampling([], [], 4, 1, 1.0, 5.0, kind)
    shares = torch.linspace(0, 1, 5)
    edges = 1 + 4 * shares if kind == "uniform" else 1 / (shares / 5 + 1 - shares)
    torch.testing.assert_close(torch.cat([even[0], ends[0, -1:]]), edges)
    assert estimator.prop_cache == []


def expected_loss(edges, cdfs, proposed, proposed_cdfs):
    """Return nerfacc's loss of one proposal, of plain torch."""
    right = torch.searchsorted(proposed, edges.contiguous(), right=True)
    left, right = (right - 1).clamp(0, proposed.shape[1] - 2), right.clamp(max=proposed.shape[1] - 1)
    weights = cdfs.diff()
    bounds = proposed_cdfs.gather(1, right[:, 1:]) - proposed_cdfs.gather(1, left[:, :-1])
    return ((weights - bounds).clamp(min=0) ** 2 / (weights + 1e-7)).mean()


def test_the_loss_of_proposals(engine):
    scales = torch.tensor([0.5, 2.0], requires_grad=True)
    estimator = nerfacc.PropNetEstimator(engine=engine)
    proposals = [lambda starts, ends, n=n: scales[n] * torch.exp(-starts) for n in range(2)]
    t_starts, t_ends = estimator.sampling(
        proposals, [12, 8], 6, 4, 0.0, 4.0, "uniform", stratified=True, requires_grad=True
    )
    assert not t_starts.requires_grad and len(estimator.prop_cache) == 3
    trans, _ = nerfacc.render_transmittance_from_density(t_starts, t_ends, 3 * torch.sin(t_starts) ** 2)
    edges = estimator.prop_cache[-1][0].vals
    cdfs = 1 - torch.cat([trans, torch.zeros(4, 1)], 1)
    levels = [(intervals.vals, proposed_cdfs) for intervals, proposed_cdfs in estimator.prop_cache[:-1]]
    expected = 3 * sum(expected_loss(edges, cdfs, *level) for level in levels)
    loss = estimator.compute_loss(trans, loss_scaler=3.0)
    torch.testing.assert_close(loss, expected)
    gradients = (torch.autograd.grad(one, scales, retain_graph=True)[0] for one in (loss, expected))
    torch.testing.assert_close(*gradients)
    assert estimator.prop_cache == [] and estimator.compute_loss(trans) == 0


def test_proposals_learn(engine):
    log_density = torch.nn.Parameter(torch.zeros(40))
    optimizer = torch.optim.Adam([log_density], 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    estimator = nerfacc.PropNetEstimator(optimizer, scheduler, engine=engine)

    def proposal(starts, ends):
        return log_density[((starts + ends) * 5).long().clamp(max=39)].exp()

    losses = []
    for _ in range(60):
        t_starts, t_ends = estimator.sampling([proposal], [24], 12, 32, 0.0, 4.0, "uniform", True, True)
        seen = 20.0 * ((t_starts > 2) & (t_starts < 2.5))
        trans, _ = nerfacc.render_transmittance_from_density(t_starts, t_ends, seen)
        losses.append(estimator.update_every_n_steps(trans, requires_grad=True))
    assert losses[-1] < 0.2 * max(losses[:5])
    assert estimator.update_every_n_steps(trans) == 0.0 and scheduler.last_epoch == 61


def test_when_proposals_are_trained():
    requires_grad = nerfacc.get_proposal_requires_grad_fn(target=3.0, num_steps=10)
    steps = [step for step in range(40) if requires_grad(step)]
    assert steps[:2] == [1, 2] and steps[-1] - steps[-2] == 4


# A training loop ------------------------------------------------------------------------------
def test_a_training_loop(engine):
    """A field of a constant density and color in a ball, from its pictures: as nerfacc's example trains."""
    torch.manual_seed(0)
    logits = torch.nn.Parameter(torch.zeros(4))
    estimator = nerfacc.OccGridEstimator(roi_aabb=BOX, resolution=16, levels=1, engine=engine)
    optimizer = torch.optim.Adam([logits], 0.1)
    origins, directions = rays_to_the_middle(64)
    step_size, losses = 0.04, []

    def density(positions):
        return torch.nn.functional.softplus(8 * logits[0] + 1) * in_ball(positions)

    # Through a ball of density 2, straight: the chord of each ray.
    along = (origins * directions).sum(1)
    chord = 2 * (along**2 - (origins.square().sum(1) - 0.6**2)).clamp(min=0).sqrt()
    color = torch.tensor([0.2, 0.5, 0.9])
    target = (1 - torch.exp(-2 * chord))[:, None] * color + torch.exp(-2 * chord)[:, None]

    for step in range(80):

        def sigma_fn(t_starts, t_ends, ray_indices):
            middles = (t_starts + t_ends)[:, None] / 2
            return density(origins[ray_indices] + middles * directions[ray_indices]).squeeze(-1)

        def rgb_sigma_fn(t_starts, t_ends, ray_indices):
            return logits[1:].sigmoid().expand(len(t_starts), 3), sigma_fn(t_starts, t_ends, ray_indices)

        estimator.update_every_n_steps(step=step, occ_eval_fn=lambda x: density(x) * step_size, occ_thre=1e-2)
        ray_indices, t_starts, t_ends = estimator.sampling(
            origins, directions, sigma_fn=sigma_fn, render_step_size=step_size, stratified=True
        )
        colors, *_ = nerfacc.rendering(
            t_starts,
            t_ends,
            ray_indices,
            n_rays=64,
            rgb_sigma_fn=rgb_sigma_fn,
            render_bkgd=torch.ones(3),
            engine=engine,
        )
        loss = torch.nn.functional.smooth_l1_loss(colors, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    torch.testing.assert_close(logits[1:].sigmoid(), color, atol=0.1, rtol=0)
