"""Strategies beside the rasterizer: what it gives is what they read, dense and packed, absolute gradients too."""

from __future__ import annotations

import pytest
import torch

from tinsmith.render import l1_ssim_loss
from tinsmith.render.gaussians import DefaultStrategy, MCMCStrategy, SelectiveAdam, rasterization

KS = torch.tensor([[[40.0, 0, 16], [0, 40, 16], [0, 0, 1]]]).expand(2, 3, 3)


def viewmats():
    matrices = torch.eye(4).repeat(2, 1, 1)
    matrices[:, 2, 3] = 3.0
    matrices[1, :3, :3] = torch.tensor([[0.0, 0, -1], [0, 1, 0], [1, 0, 0]])
    return matrices


def gaussians(count=80):
    draw = torch.Generator().manual_seed(0)
    values = {
        "means": torch.rand(count, 3, generator=draw) * 2 - 1,
        "scales": torch.rand(count, 3, generator=draw) - 3,
        "quats": torch.randn(count, 4, generator=draw),
        "opacities": torch.randn(count, generator=draw),
        "colors": torch.rand(count, 3, generator=draw),
    }
    values["means"][:5] += 50.0  # nobody sees them
    return {name: torch.nn.Parameter(value) for name, value in values.items()}


def rendered(params, engine, **options):
    return rasterization(
        params["means"],
        params["quats"],
        params["scales"].exp(),
        params["opacities"].sigmoid(),
        params["colors"],
        viewmats(),
        KS,
        32,
        32,
        engine=engine,
        **options,
    )


def counted(engine, strategy, **options):
    """Return mean gradients and counts after a step."""
    params = gaussians()
    optimizers = {name: torch.optim.Adam([one]) for name, one in params.items()}
    state = strategy.initialize_state()
    images, _, info = rendered(params, engine, **options)
    strategy.step_pre_backward(params, optimizers, state, 0, info)
    images.square().sum().backward()
    strategy.step_post_backward(params, optimizers, state, 0, info, packed=options["packed"])
    return state


@pytest.mark.costly
@pytest.mark.parametrize("absgrad", [False, True], ids=["gradients", "absolute"])
def test_packed_counts_are_the_dense_ones(engine, absgrad):
    strategy = DefaultStrategy(absgrad=absgrad, refine_scale2d_stop_iter=5)
    dense, packed = (counted(engine, strategy, packed=packed, absgrad=absgrad) for packed in (False, True))
    for name in ("grad2d", "count", "radii"):
        torch.testing.assert_close(packed[name], dense[name], rtol=1e-4, atol=1e-5)
    assert dense["count"].max() == 2 and not dense["count"][:5].any() and dense["grad2d"][5:].max() > 0
    if absgrad:  # of no Gaussian they cancel out
        plain = counted(engine, DefaultStrategy(), packed=False)
        assert (dense["grad2d"] >= plain["grad2d"] * 0.999).all() and dense["grad2d"].sum() > 1.1 * plain[
            "grad2d"
        ].sum()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("strategy", [DefaultStrategy, MCMCStrategy])
def test_a_training_with_a_strategy_gets_better(engine, strategy):
    target, params = rendered(gaussians(), engine, packed=False)[0].detach(), gaussians(120)
    with torch.no_grad():
        params["colors"].fill_(0.5)
    optimizers = {name: SelectiveAdam([one], lr=0.01) for name, one in params.items()}
    options = {"refine_start_iter": 0, "refine_every": 10, "generator": torch.Generator().manual_seed(0)}
    ours = strategy(**options, **({"noise_lr": 1.0} if strategy is MCMCStrategy else {}))
    ours.check_sanity(params, optimizers)
    state, losses = ours.initialize_state(), []
    for step in range(40):
        images, _, info = rendered(params, engine, packed=False)
        loss = l1_ssim_loss(images, target)
        ours.step_pre_backward(params, optimizers, state, step, info)
        loss.backward()
        visible = (info["radii"] > 0).all(-1).any(0)
        hidden = params["means"].detach()[~visible].clone()
        for optimizer in optimizers.values():
            optimizer.step(visible)
            optimizer.zero_grad()
        assert torch.equal(params["means"][~visible], hidden)
        more = {"lr": 1e-4} if strategy is MCMCStrategy else {}
        ours.step_post_backward(params, optimizers, state, step, info, **more)
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0] and len(params["means"]) != 120
