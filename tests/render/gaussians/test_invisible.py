"""Gaussians that no camera sees: they change nothing, and their gradients are 0, whatever numbers they have."""

from __future__ import annotations

import math

import pytest
import torch

from support.gaussians import HEIGHT, WIDTH, make_scene
from tinsmith.render.gaussians import quat_scale_to_covar_preci, rasterization, rasterization_2dgs

NAMES = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks")
AHEAD = [0.1, 0.0, 0.2]
ROWS: dict[str, dict[str, object]] = {
    "padding": {"means": 0.0, "quats": 0.0, "scales": 0.0, "opacities": 0.0, "colors": 0.0},
    "NaN padding": dict.fromkeys(("means", "quats", "scales", "opacities", "colors"), math.nan),
    "zero quaternion": {"quats": 0.0},
    "zero quaternion behind": {"quats": 0.0, "means": [0.0, 0.0, -9.0]},
    "infinite quaternion": {"quats": [math.inf, 0.0, 0.0, 0.0]},
    "infinite scales": {"scales": math.inf},
    "one infinite scale": {"scales": [0.1, math.inf, 0.1]},
    "infinite scales beside": {"scales": math.inf, "means": [900.0, 0.0, 0.0]},
    "scales whose square is infinite": {"scales": 1e200},
    "NaN scales": {"scales": math.nan},
    "zero scales behind": {"scales": 0.0, "means": [0.0, 0.0, -9.0]},
    "NaN mean": {"means": math.nan},
    "infinite mean": {"means": [math.inf, 0.0, 0.0]},
    "huge mean": {"means": [1e30, -1e30, 0.0]},
    "far away": {"means": [0.0, 0.0, 1e30]},
}
FAINT: dict[str, dict[str, object]] = {  # the projection of surfels does not look at opacities, as gsplat's
    "opacity 0": {"opacities": 0.0},
    "NaN opacity": {"opacities": math.nan},
    "opacity 0, zero scales": {"opacities": 0.0, "scales": 0.0},
    "opacity 0, tiny quaternion": {"opacities": 0.0, "quats": 1e-30},
    "opacity 0, huge scales": {"opacities": 0.0, "scales": 1e30},
}
GAUSSIANS = {
    "packed": {},
    "dense": {"packed": False},
    "antialiased": {"packed": False, "rasterize_mode": "antialiased"},
    "absolute gradients": {"rasterize_mode": "antialiased", "absgrad": True},
    "depth": {"packed": False, "render_mode": "RGB+ED"},
    "depth alone": {"render_mode": "D"},
    "sparse": {"sparse_grad": True},
    "fisheye": {"packed": False, "camera_model": "fisheye"},
    "orthographic": {"camera_model": "ortho"},
}
SURFELS = {
    "dense": {},
    "packed": {"packed": True, "render_mode": "RGB+ED", "distloss": True},
    "median": {"render_mode": "RGB+D", "depth_mode": "median"},
    "sparse": {"packed": True, "sparse_grad": True},
}


def with_invisible(given, rows):
    """Return the Gaussians of a scene, with a copy of the first for each row that has that row's values."""
    held = {name: tensor.clone() for name, tensor in given.items()}
    for name in NAMES[:5]:
        axis = 1 if name == "colors" and given["colors"].ndim == 4 else 0
        parts = [held[name]]
        for row in rows.values():
            value = given[name].select(axis, 0).clone()
            if name in row:
                value[...] = torch.as_tensor(row[name], dtype=value.dtype)
            parts.append(value.unsqueeze(axis))
        held[name] = torch.cat(parts, axis)
    return held


def run_and_differentiate(function, given, options):
    """Return image and alpha, and the dense gradient in each argument."""
    inputs = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}
    outputs = function(*(inputs[name] for name in NAMES), WIDTH, HEIGHT, **options)[:3]
    loss = sum(
        (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum()
        for y in outputs
        if isinstance(y, torch.Tensor)
    )
    slopes = torch.autograd.grad(loss, [inputs[name] for name in NAMES], allow_unused=True, materialize_grads=True)
    return outputs[:2], dict(zip(NAMES, (slope.to_dense() for slope in slopes), strict=True))


def assert_changes_nothing(function, given, rows, options):
    count = len(given["means"])
    alone, expected = run_and_differentiate(function, given, options)
    among, slopes = run_and_differentiate(function, with_invisible(given, rows), options)
    for y, twin in zip(among, alone, strict=True):
        torch.testing.assert_close(y, twin, rtol=1e-9, atol=1e-9)
    for name, slope in slopes.items():
        kept, rest = (slope, slope[:0]) if name in ("viewmats", "Ks") else (slope[:count], slope[count:])
        torch.testing.assert_close(
            kept, expected[name], rtol=1e-7, atol=1e-9, msg=lambda words, n=name: f"{n}: {words}"
        )
        wrong = [row for row, one in zip(rows, rest, strict=False) if not torch.equal(one, torch.zeros_like(one))]
        assert not wrong, f"gradient of {name} at {wrong}"


def some_scene(**options):
    """Return a scene whose first Gaussian is in view of all cameras."""
    given = make_scene(**options)
    given["means"][0], given["scales"][0], given["opacities"][0] = torch.tensor(AHEAD), 0.1, 0.9
    return given


@pytest.mark.thinned(2)
@pytest.mark.parametrize("degree", [None, 1], ids=["colors", "harmonics"])
@pytest.mark.parametrize("mode", GAUSSIANS)
def test_invisible_gaussians_have_no_gradient(engine, mode, degree):
    given = some_scene(sh_degree=degree)
    options = GAUSSIANS[mode] | {"engine": engine, "sh_degree": degree}
    assert_changes_nothing(rasterization, given, ROWS | FAINT, options)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("degree", [None, 1], ids=["colors", "harmonics"])
@pytest.mark.parametrize("mode", SURFELS)
def test_invisible_surfels_have_no_gradient(engine, mode, degree):
    given = some_scene(sh_degree=degree)
    options = SURFELS[mode] | {"engine": engine, "sh_degree": degree}
    assert_changes_nothing(rasterization_2dgs, given, ROWS, options)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_padded_scenes_of_a_batch_have_finite_gradients(engine, packed):
    """Two scenes, of which the second has fewer Gaussians, in float32: each like by itself."""
    full = {name: tensor.float() for name, tensor in make_scene().items()}
    short = {name: tensor[:9] if name in NAMES[:5] else tensor for name, tensor in full.items()}
    padding = {f"padding {i}": ROWS["padding"] for i in range(len(full["means"]) - 9)}
    padded = with_invisible(short, padding)
    options = {"packed": packed, "engine": engine}
    both = {name: torch.stack([full[name], padded[name]]) for name in full}
    _, slopes = run_and_differentiate(rasterization, both, options)
    assert all(slope.isfinite().all() for slope in slopes.values())
    for name in NAMES[:5]:
        assert slopes[name][0].abs().max() > 0 and slopes[name][1, :9].abs().max() > 0
        assert torch.equal(slopes[name][1, 9:], torch.zeros_like(slopes[name][1, 9:]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("inverse", [False, True], ids=["covariance", "precision"])
def test_a_covariance_that_is_not_finite_takes_no_gradient(engine, inverse, dtype):
    given = {name: tensor.to(dtype) for name, tensor in some_scene().items()}
    rows = {name: row for name, row in ROWS.items() if {"quats", "scales"} & row.keys()}
    if not inverse:  # a covariance of zero is finite
        del rows["zero scales behind"]
    held = with_invisible(given, rows)
    quats, scales = held["quats"].requires_grad_(), held["scales"].requires_grad_()
    matrices = quat_scale_to_covar_preci(quats, scales, not inverse, inverse, engine=engine)[int(inverse)]
    count = len(given["means"])
    assert matrices[:count].isfinite().all() and matrices[count:].isnan().all()
    # The cotangents of invisible Gaussians are 0.
    matrices[:count].sum().backward()
    for leaf in (quats, scales):
        assert leaf.grad.isfinite().all() and not leaf.grad[count:].any()


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_given_covariances_that_are_not_finite_take_no_gradient(engine, packed):
    given = some_scene()
    matrices, _ = quat_scale_to_covar_preci(given["quats"], given["scales"], compute_preci=False, engine=engine)
    bad = torch.stack([matrices[0] * factor for factor in (math.nan, math.inf, 1e308)])
    covars = torch.cat([matrices, bad]).requires_grad_()
    held = with_invisible(given, {"a": {}, "b": {}, "c": {}})
    inputs = [held[name] for name in NAMES]
    options = {"packed": packed, "engine": engine}
    image = rasterization(*inputs, WIDTH, HEIGHT, covars=covars, **options)[0]
    alone = rasterization(*(given[name] for name in NAMES), WIDTH, HEIGHT, covars=matrices, **options)[0]
    torch.testing.assert_close(image, alone, rtol=1e-9, atol=1e-9)
    image.square().sum().backward()
    assert covars.grad.isfinite().all() and not covars.grad[-3:].any() and covars.grad[0].any()
