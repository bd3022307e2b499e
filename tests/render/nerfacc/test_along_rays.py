"""nerfacc's names for sums, weights and colors along rays, against plain torch in float64."""

from __future__ import annotations

import pytest
import torch

from tinsmith import ArgumentError, ShapeError
from tinsmith.render import nerfacc

pytestmark = pytest.mark.thinned(4)

COUNTS = torch.tensor([3, 0, 4, 1, 5])
INDICES = torch.arange(5).repeat_interleave(COUNTS)
INFO = torch.stack([COUNTS.cumsum(0) - COUNTS, COUNTS], 1)
N, S = len(COUNTS), len(INDICES)


def by_ray(function, *values):
    """Apply a function of one ray's numbers to packed ones."""
    parts = zip(*(value.split(COUNTS.tolist()) for value in values), strict=True)
    return torch.cat([function(*part) for part in parts])


def without_last(scan, first):
    def run(values):
        return torch.cat([values.new_full((1,), first), scan(values, 0)[:-1]]) if len(values) else values

    return run


SCANS = {
    "inclusive_sum": lambda x: x.cumsum(0),
    "exclusive_sum": without_last(torch.cumsum, 0.0),
    "inclusive_prod": lambda x: x.cumprod(0),
    "exclusive_prod": without_last(torch.cumprod, 1.0),
}
PACKED = {"packed_info": {"packed_info": INFO}, "indices": {"indices": INDICES}}


def assert_agree(ours, twin, *inputs):
    """Assert that values agree, and gradients for a random cotangent."""
    inputs = [one.detach().clone().requires_grad_() for one in inputs]
    y, expected = ours(*inputs), twin(*inputs)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    cotangent = torch.randn_like(y)
    gradients = torch.autograd.grad(y, inputs, cotangent, allow_unused=True)
    torch.testing.assert_close(
        gradients, torch.autograd.grad(expected, inputs, cotangent, allow_unused=True), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("how", PACKED)
@pytest.mark.parametrize("name", SCANS)
def test_packed_scans(engine, name, how):
    x = torch.randn(S, dtype=torch.float64)
    x[4] = 0.0  # whose gradient of a product is not a quotient
    assert_agree(lambda x: getattr(nerfacc, name)(x, **PACKED[how], engine=engine), lambda x: by_ray(SCANS[name], x), x)


@pytest.mark.parametrize("name", SCANS)
def test_batched_scans(name):
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    assert_agree(
        getattr(nerfacc, name), lambda x: torch.stack([SCANS[name](row) for row in x.view(6, 4)]).view(x.shape), x
    )


def test_runs_of_equal_indices_are_rays_in_any_order(engine):
    sums = nerfacc.inclusive_sum(torch.ones(5), indices=torch.tensor([3, 3, 0, 1, 1]), engine=engine)
    assert sums.tolist() == [1, 2, 1, 1, 2]
    assert nerfacc.exclusive_sum(torch.ones(0), indices=torch.zeros(0, dtype=torch.int64), engine=engine).shape == (0,)
    assert nerfacc.inclusive_sum(torch.ones(2).half(), indices=torch.tensor([0, 0]), engine=engine).tolist() == [1, 2]


def transmittance(alphas):
    return SCANS["exclusive_prod"](1 - alphas)


def alphas_of(starts, ends, sigmas):
    return 1 - torch.exp(-sigmas * (ends - starts))


WAYS = {
    "packed_info": {"packed_info": INFO},
    "ray_indices": {"ray_indices": INDICES, "n_rays": N},
    "ray_indices alone": {"ray_indices": INDICES},
}


def samples():
    starts = by_ray(lambda x: x.cumsum(0), torch.rand(S, dtype=torch.float64))
    return starts, starts + torch.rand(S, dtype=torch.float64), 3 * torch.rand(S, dtype=torch.float64)


@pytest.mark.parametrize("has_prefix", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_weights_from_densities(engine, way, has_prefix):
    prefix = torch.rand(S, dtype=torch.float64) if has_prefix else None
    given = WAYS[way] | {"prefix_trans": prefix, "engine": engine}
    factor = 1.0 if prefix is None else prefix

    def twin(*measures):
        alphas = alphas_of(*measures)
        trans = by_ray(transmittance, alphas) * factor
        return torch.stack([trans * alphas, trans, alphas])

    assert_agree(lambda *given_: torch.stack(nerfacc.render_weight_from_density(*given_, **given)), twin, *samples())
    assert_agree(
        lambda *given_: torch.stack(nerfacc.render_transmittance_from_density(*given_, **given)),
        lambda *measures: twin(*measures)[1:],
        *samples(),
    )


@pytest.mark.parametrize("has_prefix", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_weights_from_alphas(engine, way, has_prefix):
    prefix = torch.rand(S, dtype=torch.float64) if has_prefix else None
    given = WAYS[way] | {"prefix_trans": prefix, "engine": engine}
    factor = 1.0 if prefix is None else prefix
    alphas = torch.rand(S, dtype=torch.float64)
    alphas[3], alphas[5] = 1.0, 0.0

    def twin(alphas):
        trans = by_ray(transmittance, alphas) * factor
        return torch.stack([trans * alphas, trans])

    assert_agree(lambda alphas: torch.stack(nerfacc.render_weight_from_alpha(alphas, **given)), twin, alphas)
    assert_agree(
        lambda alphas: nerfacc.render_transmittance_from_alpha(alphas, **given), lambda alphas: twin(alphas)[1], alphas
    )


def test_batched_weights():
    starts, ends, sigmas = (part[:12].view(3, 4) for part in samples())
    alphas = alphas_of(starts, ends, sigmas)
    trans = torch.stack([transmittance(row) for row in alphas])
    torch.testing.assert_close(
        nerfacc.render_weight_from_density(starts, ends, sigmas), (trans * alphas, trans, alphas)
    )
    torch.testing.assert_close(nerfacc.render_weight_from_alpha(alphas), (trans * alphas, trans))


def test_visibility(engine):
    starts, ends, sigmas = samples()
    alphas = alphas_of(starts, ends, sigmas)
    trans = by_ray(transmittance, alphas)
    given = {"ray_indices": INDICES, "n_rays": N, "engine": engine}
    for eps, least in ((0.3, 0.0), (0.3, 0.5), (0.0, 0.5)):
        expected = (trans >= eps) & (alphas >= least)
        bounds = given | {"early_stop_eps": eps, "alpha_thre": least}
        assert nerfacc.render_visibility_from_density(starts, ends, sigmas, **bounds).equal(expected)
        assert nerfacc.render_visibility_from_alpha(alphas, **bounds).equal(expected)
    assert 0 < expected.sum() < S


def sum_by_ray(values):
    return torch.stack([part.sum(0) for part in values.split(COUNTS.tolist())])


def test_accumulation():
    weights, values = torch.randn(S, dtype=torch.float64), torch.randn(S, 3, dtype=torch.float64)
    order = torch.randperm(S)

    def ours(weights, values):
        return nerfacc.accumulate_along_rays(weights[order], values[order], INDICES[order], N)

    assert_agree(ours, lambda weights, values: sum_by_ray(weights[:, None] * values), weights, values)
    assert_agree(
        lambda w: nerfacc.accumulate_along_rays(w, None, INDICES, N), lambda w: sum_by_ray(w)[:, None], weights
    )
    batched = nerfacc.accumulate_along_rays(weights[:12].view(3, 4), values[:12].view(3, 4, 3))
    torch.testing.assert_close(batched, (weights[:12, None] * values[:12]).view(3, 4, 3).sum(1))
    outputs = torch.ones(N, 3, dtype=torch.float64)
    nerfacc.accumulate_along_rays_(weights, values, INDICES, outputs)
    torch.testing.assert_close(outputs, 1 + sum_by_ray(weights[:, None] * values))


def test_distortion(engine):
    def of_ray(weights, starts, ends):
        middles = (starts + ends) / 2
        pairs = weights[:, None] * weights * (middles[:, None] - middles).abs()
        return (pairs.sum() + (weights**2 * (ends - starts)).sum() / 3)[None]

    starts, _, weights = samples()
    assert_agree(
        lambda *given: nerfacc.distortion(*given, INDICES, N, engine=engine),
        lambda *given: by_ray(of_ray, *given)[:, None],
        weights,
        starts,
        starts + 0.1,
    )


@pytest.mark.parametrize("is_expected", [True, False])
@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("kind", ["rgb_sigma_fn", "rgb_alpha_fn"])
@pytest.mark.parametrize("is_packed", [True, False])
def test_rendering(engine, is_packed, kind, has_background, is_expected):
    background = torch.rand(3, dtype=torch.float64) if has_background else None
    starts, ends, sigmas = samples()
    measures = sigmas if kind == "rgb_sigma_fn" else alphas_of(starts, ends, sigmas)
    rgbs = torch.rand(S, 3, dtype=torch.float64)
    counts, indices = COUNTS.tolist(), INDICES
    if not is_packed:
        starts, ends, measures, rgbs = (
            part[:12].view(3, 4, *part.shape[1:]) for part in (starts, ends, measures, rgbs)
        )
        counts, indices = [4] * 3, None

    def ours(measures, rgbs):
        asked = {kind: lambda *given: (rgbs, measures)}
        packed = {"ray_indices": indices, "n_rays": N} if is_packed else {}
        options = {"render_bkgd": background, "expected_depths": is_expected, "engine": engine}
        colors, opacities, depths, extras = nerfacc.rendering(starts, ends, **packed, **asked, **options)
        names = {"weights", "trans", "alphas", "rgbs"} | ({"sigmas"} if kind == "rgb_sigma_fn" else set())
        assert extras.keys() == names
        return torch.cat([colors, opacities, depths], 1)

    def twin(measures, rgbs):
        rows = []
        flat = (starts.reshape(-1), ends.reshape(-1), measures.reshape(-1), rgbs.reshape(-1, 3))
        for begin, end, measure, rgb in zip(*(part.split(counts) for part in flat), strict=True):
            alphas = alphas_of(begin, end, measure) if kind == "rgb_sigma_fn" else measure
            weights = transmittance(alphas) * alphas
            opacity, depth = weights.sum(), (weights * (begin + end) / 2).sum()
            depth = depth / opacity.clamp(min=torch.finfo(torch.float64).eps) if is_expected else depth
            color = (weights[:, None] * rgb).sum(0) + (0 if background is None else (1 - opacity) * background)
            rows.append(torch.cat([color, opacity[None], depth[None]]))
        return torch.stack(rows)

    assert_agree(ours, twin, measures, rgbs)


def test_an_opaque_last_sample_is_finite():
    """As nerfacc's example has it: the density of the last sample is infinite."""
    sigmas = torch.ones(2, 3, dtype=torch.float64)
    sigmas[:, -1] = torch.inf
    sigmas.requires_grad_()
    edges = torch.linspace(0, 1, 4, dtype=torch.float64).expand(2, 4)
    _, opacities, *_ = nerfacc.rendering(
        edges[:, :-1], edges[:, 1:], rgb_sigma_fn=lambda *_: (torch.ones(2, 3, 3, dtype=torch.float64), sigmas)
    )
    torch.testing.assert_close(opacities, torch.ones_like(opacities))
    assert torch.autograd.grad(opacities.sum(), sigmas)[0].isfinite().all()


def test_packed_info():
    assert nerfacc.pack_info(INDICES, N).equal(INFO) and nerfacc.pack_info(INDICES).equal(INFO)
    assert nerfacc.pack_info(INDICES[:0]).shape == (0, 2) and nerfacc.pack_info(INDICES[:0], 2).tolist() == [[0, 0]] * 2


T = torch.zeros(3)
REFUSED = [
    (lambda: nerfacc.exclusive_sum(T, INFO, T.long()), ArgumentError, "`exclusive_sum` takes `packed_info` or indices"),
    (lambda: nerfacc.rendering(T, T), ArgumentError, "expected  `rgb_sigma_fn` or `rgb_alpha_fn`"),
    (lambda: nerfacc.rendering(T, T, T[:2].long(), 2, lambda *_: ()), ShapeError, "ray_indices  (2,)"),
    (
        lambda: nerfacc.rendering(T, T, T.long(), 1, lambda *_: (torch.ones(3, 3), torch.ones(3, 1))),
        ShapeError,
        "of `rendering` returned other shapes\n  expected  (3, 3) and (3,)\n  got       (3, 3) and (3, 1)",
    ),
    (lambda: nerfacc.accumulate_along_rays(T, None, T.long()), ArgumentError, "Pass `n_rays`, such as len(rays_o)."),
    (
        lambda: nerfacc.accumulate_along_rays(T, T),
        ShapeError,
        "Pass values shaped like the weights, with one more dim.",
    ),
    (lambda: nerfacc.accumulate_along_rays(T[None], None, T.long(), 1), ShapeError, "pass weights (all_samples,)"),
    (lambda: nerfacc.accumulate_along_rays_(T, None, T.long()), ShapeError, "expected  (n_rays, 1)"),
    (lambda: nerfacc.distortion(T, T, T[:2], T.long(), 1), ShapeError, "t_ends       (2,)"),
]


@pytest.mark.parametrize(("make", "kind", "words"), REFUSED)
def test_refused(make, kind, words):
    with pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)
