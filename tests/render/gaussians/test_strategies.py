"""Strategies: which Gaussians come and go, what becomes of their moments, and that relocated ones look the same."""

from __future__ import annotations

import math

import pytest
import torch

import tinsmith as ts
from tinsmith.nn import RowOptimizer, make_optimizer
from tinsmith.render.gaussians import DefaultStrategy, MCMCStrategy, SelectiveAdam, compute_relocation

N = 12


def scene(count=N, seed=0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    values = {
        "means": torch.randn(count, 3, generator=draw, dtype=dtype),
        "scales": torch.randn(count, 3, generator=draw, dtype=dtype) - 4,
        "quats": torch.randn(count, 4, generator=draw, dtype=dtype),
        "opacities": torch.randn(count, generator=draw, dtype=dtype),
        "sh0": torch.randn(count, 1, 3, generator=draw, dtype=dtype),
    }
    return {name: torch.nn.Parameter(value) for name, value in values.items()}


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam([p], lr=0.01),
    "fused": lambda p: torch.optim.Adam([p], lr=0.01, fused=True),
    "amsgrad": lambda p: torch.optim.AdamW([p], lr=0.01, amsgrad=True),
    "SGD": lambda p: torch.optim.SGD([p], lr=0.01, momentum=0.9),
    "SelectiveAdam": lambda p: SelectiveAdam([p], lr=0.01),
    "ours": lambda p: make_optimizer([p], {"otype": "Adam", "learning_rate": 0.01}),
    "entrywise": lambda p: make_optimizer([{"params": [p], "matrix": False}], {"otype": "Adam", "l2_reg": 0.0}),
    "decayed": lambda p: make_optimizer([p], {"otype": "ExponentialDecay", "nested": {"otype": "Adam"}}),
}


def stepped(params, make=OPTIMIZERS["Adam"], steps=3):
    """Return optimizers that have taken steps, so that they have moments, a different row for each Gaussian."""
    optimizers = {name: make(parameter) for name, parameter in params.items()}
    for _ in range(steps):
        for parameter in params.values():
            (parameter * torch.arange(1.0, parameter.numel() + 1).view_as(parameter)).square().sum().backward()
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
    return optimizers


def moments(optimizer, parameter):
    return {
        key: value
        for key, value in optimizer.state[parameter].items()
        if isinstance(value, torch.Tensor) and value.ndim
    }


def seen(params, norms, radii=None, width=64, height=48, packed=False):
    """Return what `rasterization` returns, after a backward pass that left gradients of these norms, in half sides."""
    count = len(params["means"])
    radii = torch.ones(count) if radii is None else torch.as_tensor(radii)
    means2d = torch.zeros(1, count, 2, requires_grad=True)
    info = {"width": width, "height": height, "n_cameras": 1, "gaussian_ids": None}
    shares = torch.tensor([2.0 / width, 2.0 / height]) * torch.tensor([0.6, 0.8])
    coefficients = torch.as_tensor(norms)[:, None] * shares
    info["radii"] = radii.view(1, count, 1).expand(1, count, 2).int()
    info["means2d"] = means2d * 1
    if packed:
        rows = radii.nonzero()[:, 0]
        info |= {"gaussian_ids": rows, "radii": info["radii"][0, rows], "means2d": info["means2d"][0, rows]}
        coefficients = coefficients[rows]
    return info, coefficients


def after_backward(strategy, params, optimizers, state, step, norms, **changes):
    info, coefficients = seen(params, norms, **changes)
    strategy.step_pre_backward(params, optimizers, state, step, info)
    (info["means2d"] * coefficients).sum().backward()
    strategy.step_post_backward(params, optimizers, state, step, info, packed=changes.get("packed", False))


# What grows and goes ---------------------------------------------------------------------------


def by_hand(opacities, scales, norms, radii, strategy, step, scene_scale):
    """Count how many are cloned, split, pruned: Gaussian by Gaussian."""
    cloned = split = 0
    left = []
    for opacity, scale, norm, radius in zip(opacities, scales, norms, radii, strict=True):
        high = radius > 0 and norm > strategy.grow_grad2d
        small = max(scale) <= strategy.grow_scale3d * scene_scale
        large_radius = step < strategy.refine_scale2d_stop_iter and radius / 64 > strategy.grow_scale2d
        if high and small:
            cloned += 1
            left += [(opacity, scale, radius)]
        if (high and not small) or large_radius:
            split += 1
            left += [(opacity, [one / 1.6 for one in scale], radius)] * 2
        else:
            left += [(opacity, scale, radius)]
    pruned = 0
    for opacity, scale, radius in left:
        gone = opacity < strategy.prune_opa
        if step > strategy.reset_every:
            gone = gone or max(scale) > strategy.prune_scale3d * scene_scale
            gone = gone or (step < strategy.refine_scale2d_stop_iter and radius / 64 > strategy.prune_scale2d)
        pruned += gone
    return cloned, split, pruned


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("options", [{}, {"refine_scale2d_stop_iter": 5000}], ids=["by gradient", "by radius"])
@pytest.mark.parametrize("step", [600, 3300])
def test_counts_are_those_of_a_loop(step, options, packed, capsys):
    strategy = DefaultStrategy(verbose=True, generator=torch.Generator().manual_seed(1), **options)
    draw = torch.Generator().manual_seed(5)
    params = scene(300)
    with torch.no_grad():
        params["opacities"].copy_(torch.randn(300, generator=draw) * 4 - 2)
        params["scales"].copy_(torch.randn(300, 3, generator=draw) - 4)
    norms = 4e-4 * torch.rand(300, generator=draw)
    radii = torch.randint(0, 14, (300,), generator=draw)
    optimizers, state = stepped(params), strategy.initialize_state(scene_scale=2.0)
    strategy.check_sanity(params, optimizers)
    activated = (params["opacities"].sigmoid().tolist(), params["scales"].exp().tolist())
    expected = by_hand(*activated, norms.tolist(), radii.tolist(), strategy, step, 2.0)
    assert min(expected) > 3
    after_backward(strategy, params, optimizers, state, step, norms, radii=radii, packed=packed)
    cloned, split, pruned = expected
    words = f"Step {step}: {cloned} Gaussians cloned, {split} split, {pruned} pruned"
    assert words in capsys.readouterr().out
    assert {len(value) for value in params.values()} == {300 + cloned + split - pruned}
    assert len(state["grad2d"]) == len(state["count"]) == len(params["means"]) and not state["grad2d"].any()
    strategy.check_sanity(params, optimizers)
    for name, optimizer in optimizers.items():
        optimizer.step()
        assert {len(one) for one in moments(optimizer, params[name]).values()} == {len(params[name])}


def test_gradients_are_means_over_the_cameras_that_see():
    strategy, params = DefaultStrategy(refine_start_iter=10**6), scene(3)
    optimizers, state = stepped(params), strategy.initialize_state()
    for step, (norms, radii) in enumerate([([1.0, 2, 3], [1, 0, 2]), ([0.5, 8, 1], [1, 3, 0])]):
        after_backward(strategy, params, optimizers, state, step, norms, radii=radii)
    torch.testing.assert_close(state["grad2d"], torch.tensor([1.5, 8, 3]))
    assert state["count"].tolist() == [2, 1, 1]


def test_radii_are_the_largest_of_all_cameras():
    strategy, params = DefaultStrategy(refine_scale2d_stop_iter=9), scene(2)
    state = strategy.initialize_state()
    info = {"width": 64, "height": 32, "n_cameras": 2, "radii": torch.tensor([[[8, 4], [2, 2]], [[3, 1], [16, 1]]])}
    info["means2d"] = torch.zeros(2, 2, 2, requires_grad=True) * 1
    strategy.step_pre_backward(params, {}, state, 1, info)
    info["means2d"].sum().backward()
    strategy.step_post_backward(params, {}, state, 1, info)
    assert state["radii"].tolist() == [8 / 64, 16 / 64]


def test_absolute_gradients_are_another_tensor():
    strategy, params = DefaultStrategy(absgrad=True), scene(2)
    state = strategy.initialize_state()
    info = {"width": 2, "height": 2, "n_cameras": 1, "radii": torch.ones(1, 2, 2)}
    info["means2d"] = torch.zeros(1, 2, 2, requires_grad=True) * 1
    strategy.step_pre_backward(params, {}, state, 1, info)
    info["means2d"].sum().backward()
    with pytest.raises(ts.ArgumentError, match="has no absolute gradient\nRender with absgrad=True"):
        strategy.step_post_backward(params, {}, state, 1, info)
    info["means2d"].absgrad = torch.tensor([[[3.0, 4.0], [0, 0]]])
    strategy.step_post_backward(params, {}, state, 1, info)
    assert state["grad2d"].tolist() == [5, 0]


# What becomes of the moments -------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_survivors_keep_their_moments_and_new_ones_have_none(name):
    params = scene()
    optimizers = stepped(params, OPTIMIZERS[name])
    before = {key: moments(optimizers[key], params[key]) for key in params}
    before = {key: {k: v.clone() for k, v in held.items()} for key, held in before.items()}
    plain = {key: {k: v for k, v in optimizers[key].state[params[key]].items() if k == "step"} for key in params}
    old = {key: value.detach().clone() for key, value in params.items()}
    norms = torch.zeros(N)
    norms[[2, 5]] = 1.0  # 2 is cloned, 5 split
    with torch.no_grad():
        params["scales"].fill_(-9.0)
        params["scales"][5] = 0.0
        params["opacities"][7] = -9.0  # pruned
        params["opacities"][old["opacities"] < -5] = 0.0
    strategy = DefaultStrategy(generator=torch.Generator().manual_seed(3))
    after_backward(strategy, params, optimizers, strategy.initialize_state(), 600, norms)
    survivors = [i for i in range(N) if i not in (5, 7)]
    assert len(params["means"]) == N + 1
    torch.testing.assert_close(params["means"][:10].detach(), old["means"][survivors], rtol=0, atol=0)
    torch.testing.assert_close(params["sh0"][10:].detach(), old["sh0"][[2, 5, 5]], rtol=0, atol=0)
    for key, parameter in params.items():
        after = moments(optimizers[key], parameter)
        assert set(after) == set(before[key]) and after
        for k, value in after.items():
            assert torch.equal(value[:10], before[key][k][survivors]) and value[:10].any()
            assert not value[10:].any()
        for k, value in plain[key].items():
            assert optimizers[key].state[parameter][k] is value
        assert len(optimizers[key].state) == 1
    loss = sum(parameter.square().sum() for parameter in params.values())
    loss.backward()
    for key, optimizer in optimizers.items():
        held = params[key].detach().clone()
        optimizer.step()
        assert (params[key] != held).all()


def test_split_gaussians_lie_within_the_old_one_and_are_smaller():
    params = scene(1)
    with torch.no_grad():
        params["scales"].copy_(torch.tensor([[0.0, -3.0, -6.0]]))
        params["quats"].copy_(torch.tensor([[1.0, 1.0, 0.0, 0.0]]))  # a quarter turn about x: y becomes z
        params["means"].zero_()
        params["opacities"].fill_(1.0)
    many = {
        name: torch.nn.Parameter(value.detach().repeat(4000, *[1] * (value.ndim - 1))) for name, value in params.items()
    }
    strategy = DefaultStrategy(revised_opacity=True, generator=torch.Generator().manual_seed(0))
    after_backward(strategy, many, stepped(many, steps=0), strategy.initialize_state(), 600, torch.ones(4000))
    assert len(many["means"]) == 8000
    spread = many["means"].detach().T.cov()
    expected = torch.diag(torch.tensor([1.0, math.exp(-12), math.exp(-6)]))
    torch.testing.assert_close(spread, expected, rtol=0.06, atol=2e-3)
    torch.testing.assert_close(many["scales"][0].exp(), params["scales"][0].exp() / 1.6)
    two = 1 - (1 - many["opacities"][0].sigmoid()) ** 2
    torch.testing.assert_close(two, params["opacities"][0].sigmoid())


def test_opacities_are_reset_and_their_moments_with_them():
    params = scene()
    optimizers = stepped(params)
    other = moments(optimizers["means"], params["means"])["exp_avg"].clone()
    strategy = DefaultStrategy(refine_start_iter=10**6)
    after_backward(strategy, params, optimizers, strategy.initialize_state(), 3000, torch.zeros(N))
    assert params["opacities"].sigmoid().max().item() == pytest.approx(0.01, rel=1e-5)
    assert not moments(optimizers["opacities"], params["opacities"])["exp_avg"].any()
    assert torch.equal(moments(optimizers["means"], params["means"])["exp_avg"], other)


@pytest.mark.parametrize("step", [500, 650, 15_000, 3000, 6010], ids=str)
def test_steps_without_refinement(step):
    strategy, params = DefaultStrategy(pause_refine_after_reset=20, refine_every=10 if step > 6000 else 100), scene()
    optimizers, state = stepped(params), strategy.initialize_state()
    after_backward(strategy, params, optimizers, state, step, torch.ones(N))
    assert len(params["means"]) == N
    assert (state["grad2d"] is None) == (step == 15_000)


def test_parameter_dicts_and_frozen_parameters_are_supported():
    params = torch.nn.ParameterDict(scene())
    params["frozen"] = torch.nn.Parameter(torch.arange(float(N)), requires_grad=False)
    optimizers = stepped({name: value for name, value in params.items() if name != "frozen"})
    strategy = DefaultStrategy()
    strategy.check_sanity(params, optimizers)
    after_backward(strategy, params, optimizers, strategy.initialize_state(), 600, torch.ones(N))
    assert len(params["frozen"]) == len(params["means"]) > N and not params["frozen"].requires_grad


# Relocation ------------------------------------------------------------------------------------


def alpha_along_a_line(opacity, scale, count):
    """Integrate over x what `count` Gaussians at one place hide, by the trapezoid rule, which is exact here."""
    x = torch.linspace(-40.0, 40.0, 400_001, dtype=torch.float64)
    hidden = 1 - (1 - opacity * torch.exp(-x.square() / (2 * scale**2))) ** count
    return torch.trapezoid(hidden, x).item()


@pytest.mark.parametrize("count", [1, 2, 3, 10, 51])
@pytest.mark.parametrize("opacity", [0.02, 0.5, 0.97, 1 - 1e-6])
def test_relocated_gaussians_hide_as_much_as_the_old_one(opacity, count):
    opacities, scales = torch.tensor([opacity], dtype=torch.float64), torch.tensor([[0.5, 1, 2]], dtype=torch.float64)
    new_opacities, new_scales = compute_relocation(opacities, scales, torch.tensor([count]), min_opacity=0.0)
    assert 1 - (1 - new_opacities.item()) ** count == pytest.approx(opacity, rel=1e-9)
    factors = new_scales / scales
    torch.testing.assert_close(factors, factors[:, :1].expand(1, 3))
    ours = alpha_along_a_line(new_opacities.item(), new_scales[0, 1].item(), count)
    assert ours == pytest.approx(alpha_along_a_line(opacity, 1.0, 1), rel=1e-9)


def test_relocation_is_the_papers_double_sum():
    """Equation 9 as it is written, for each Gaussian by itself; 60 copies count as 51."""
    draw = torch.Generator().manual_seed(0)
    opacities = torch.rand(20, generator=draw, dtype=torch.float64)
    scales, ratios = torch.rand(20, 3, generator=draw, dtype=torch.float64), torch.randint(1, 61, (20,), generator=draw)
    opacities[:3] = torch.tensor([0.004, 0.02, 1e-6])  # each copy is below the lower bound, which the scales ignore
    ours = compute_relocation(opacities, scales, ratios, torch.zeros(51, 51))
    for i in range(20):
        n = min(int(ratios[i]), 51)
        p = 1 - (1 - opacities[i].item()) ** (1 / n)
        terms = [
            math.comb(a - 1, k) * (-1) ** k / math.sqrt(k + 1) * p ** (k + 1) for a in range(1, n + 1) for k in range(a)
        ]
        assert ours[0][i].item() == pytest.approx(min(max(p, 0.005), 1 - 2**-23))
        torch.testing.assert_close(ours[1][i], opacities[i] / math.fsum(terms) * scales[i], rtol=1e-8, atol=0)


def test_dead_gaussians_take_the_place_of_live_ones(capsys):
    params = scene(200, dtype=torch.float64)
    optimizers = stepped(params)
    with torch.no_grad():
        params["opacities"][:150] = -8.0
        params["opacities"][150:] = 1.0
        params["opacities"][150] = -3.0
    old = {name: value.detach().clone() for name, value in params.items()}
    moved = moments(optimizers["means"], params["means"])["exp_avg"].clone()
    strategy = MCMCStrategy(cap_max=205, noise_lr=0.0, verbose=True, generator=torch.Generator().manual_seed(0))
    strategy.check_sanity(params, optimizers)
    strategy.step_post_backward(params, optimizers, strategy.initialize_state(), 600, {}, lr=1e-3)
    assert "Step 600: 150 Gaussians relocated, 5 added. Now there are 205." in capsys.readouterr().out
    assert {len(value) for value in params.values()} == {205}
    sources = (params["means"][:, None] == old["means"][150:]).all(-1)
    assert (sources.sum(1) == 1).all()  # each is where a live one was
    copies = sources.sum(0)
    assert copies.sum() == 205 and copies[0] < 5 < copies[1:].max()  # the faint one is drawn seldom
    for row in range(50):
        group = sources[:, row]
        together = 1 - (1 - params["opacities"][group].sigmoid()).prod()
        assert together.item() == pytest.approx(old["opacities"][150 + row].sigmoid().item(), rel=1e-9)
    after = moments(optimizers["means"], params["means"])["exp_avg"]
    untouched = (copies == 1).nonzero()[:, 0] + 150
    assert len(untouched) and torch.equal(after[untouched], moved[untouched])
    drawn = (copies > 1).nonzero()[:, 0] + 150
    assert not after[:150].any() and not after[drawn].any() and not after[200:].any()


def test_noise_has_the_gaussians_own_shape_and_fades_where_it_is_opaque():
    count = 20_000
    params = scene(1)
    with torch.no_grad():
        params["scales"].copy_(torch.tensor([[0.0, -1.0, -2.0]]))
        params["means"].zero_()
        params["opacities"].copy_(torch.tensor([0.005]).logit())
    many = {
        name: torch.nn.Parameter(value.detach().repeat(count, *[1] * (value.ndim - 1)))
        for name, value in params.items()
    }
    many["opacities"].data[count // 2 :] = 3.0
    MCMCStrategy(noise_lr=10.0, generator=torch.Generator().manual_seed(0)).step_post_backward(
        many, {}, {}, 1, {}, lr=0.1
    )
    covariance = ts.reference.gaussian_covariance(params["quats"].detach(), params["scales"].detach().exp())[0]
    expected = 0.25 * covariance @ covariance  # the noise is S e times a half
    sampled = many["means"][: count // 2].detach().T.cov()
    torch.testing.assert_close(sampled, expected, rtol=0.05, atol=0.01)
    assert many["means"][count // 2 :].abs().max() < 1e-6


@pytest.mark.parametrize("make", [DefaultStrategy, MCMCStrategy])
def test_a_seed_decides(make):
    def run(seed, global_seed):
        torch.manual_seed(global_seed)
        strategy, params = make(generator=torch.Generator().manual_seed(seed)), scene()
        with torch.no_grad():
            params["opacities"][:4] = -8.0
        optimizers, state = stepped(params), strategy.initialize_state()
        if make is DefaultStrategy:
            after_backward(strategy, params, optimizers, state, 600, torch.ones(N))
        else:
            strategy.step_post_backward(params, optimizers, state, 600, {}, lr=1e-4)
        return params["means"].detach()

    assert torch.equal(run(7, 0), run(7, 1))
    assert not torch.equal(run(7, 0), run(8, 0))


# Refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [DefaultStrategy, MCMCStrategy])
def test_invalid_parameters_are_refused(make):
    strategy, params = make(), scene()
    optimizers = stepped(params)
    with pytest.raises(ts.ArgumentError, match="needs parameters that `params` does not have(.|\n)*missing +quats"):
        strategy.check_sanity({k: v for k, v in params.items() if k != "quats"}, optimizers)
    with pytest.raises(ts.ShapeError, match="have different numbers of Gaussians"):
        strategy.check_sanity({**params, "sh0": params["sh0"][:3]}, optimizers)
    with pytest.raises(ts.ArgumentError, match="needs one optimizer for each parameter"):
        strategy.check_sanity(params, {k: v for k, v in optimizers.items() if k != "sh0"})
    shared = torch.optim.Adam([params["means"], params["sh0"]])
    with pytest.raises(ts.ArgumentError, match="does not step `means` alone"):
        strategy.check_sanity(params, {**optimizers, "means": shared})
    with pytest.raises(ts.ArgumentError, match="RowOptimizer does not support parameters whose number of rows changes"):
        strategy.check_sanity(params, {**optimizers, "means": RowOptimizer([params["means"]])})
    averaging = make_optimizer([params["means"]], {"otype": "EMA", "nested": {"otype": "Adam"}})
    with pytest.raises(ts.ArgumentError, match="EMA does not support parameters whose number of rows changes"):
        strategy.check_sanity(params, {**optimizers, "means": averaging})


def test_information_that_is_not_there_is_refused():
    strategy, params = DefaultStrategy(), scene()
    optimizers, state = stepped(params), strategy.initialize_state()
    with pytest.raises(ts.ArgumentError, match="missing +means2d"):
        strategy.step_pre_backward(params, optimizers, state, 0, {"width": 3})
    info, _ = seen(params, torch.zeros(N))
    with pytest.raises(ts.ArgumentError, match="has no gradient\nCall step_pre_backward before"):
        strategy.step_post_backward(params, optimizers, state, 0, info)
    info["means2d"].retain_grad()
    info["means2d"].sum().backward()
    with pytest.raises(ts.ArgumentError, match=r"was not rendered with packed=True\n.*\nPass packed=False"):
        strategy.step_post_backward(params, optimizers, state, 0, info, packed=True)


def test_a_packed_image_is_not_counted_as_a_dense_one():
    """Its rows are the Gaussians that are seen: counted by their place, others would grow."""
    strategy, params = DefaultStrategy(), scene()
    optimizers, state = stepped(params), strategy.initialize_state()
    info, _ = seen(params, torch.zeros(N), packed=True)
    info["means2d"].retain_grad()
    info["means2d"].sum().backward()
    with pytest.raises(ts.ArgumentError, match=r"was rendered with packed=True\n.*\nPass packed=True"):
        strategy.step_post_backward(params, optimizers, state, 0, info)


def test_the_function_that_returns_the_missing_gradient_is_named():
    strategy, params = DefaultStrategy(key_for_gradient="gradient_2dgs"), scene()
    info, _ = seen(params, torch.zeros(N))
    with pytest.raises(ts.ArgumentError, match="Pass the last result of rasterization_2dgs"):
        strategy.step_pre_backward(params, stepped(params), strategy.initialize_state(), 0, info)


def test_optimizer_state_that_is_not_by_row_is_refused_and_left_alone():
    params = scene()
    optimizers = stepped(params, lambda p: torch.optim.Adafactor([p]))
    held = params["means"]
    strategy = DefaultStrategy()
    with pytest.raises(ts.ArgumentError, match="state that cannot be changed by rows"):
        after_backward(strategy, params, optimizers, strategy.initialize_state(), 600, torch.ones(N))
    assert params["means"] is held and optimizers["means"].param_groups[0]["params"][0] is held


def test_relocation_refuses_shapes():
    with pytest.raises(ts.ShapeError, match="`compute_relocation` do not fit each other"):
        compute_relocation(torch.zeros(3), torch.zeros(3, 2), torch.ones(3))
