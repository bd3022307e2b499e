"""Surfels against their twin, which intersects rays with planes: values, and gradients of everything."""

from __future__ import annotations

import math

import pytest
import torch

import tinsmith as ts
from support.gaussians import HEIGHT, WIDTH, make_scene
from tinsmith import reference
from tinsmith.render.gaussians import fully_fused_projection_2dgs, rasterization_2dgs, rasterize_to_pixels_2dgs

pytestmark = pytest.mark.thinned(4)

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
DOUBLE = torch.float64
NAMES = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks")


def turns_of(quats):
    """Return rotations, a column at a time: from covariances of Gaussians whose deviations differ they would not
    have a sign.
    """
    w, x, y, z = (quats / quats.norm(dim=-1, keepdim=True)).unbind(-1)
    first = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], -1)
    second = torch.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)], -1)
    return torch.stack([first, second, torch.linalg.cross(first, second)], -1)


def twin(given, *, render_mode="RGB", distloss=False, tile_size=16, **options):
    """Return colors, alphas, normals, distortion and median of all cameras."""
    images = []
    for c, (viewmat, camera) in enumerate(zip(given["viewmats"], given["Ks"], strict=True)):
        turns = turns_of(given["quats"])
        seen = reference.project_surfels(
            given["means"], turns, given["scales"], viewmat, camera, WIDTH, HEIGHT, **options
        )
        shown, background = given["colors"], given["backgrounds"][c]
        if render_mode != "RGB":
            kept = len(background) if render_mode.startswith("RGB") else 0
            shown = torch.cat([shown[:, :kept], seen.depths[:, None]], 1)
            background = torch.cat([background[:kept], background.new_zeros(1)])
        image, left, normals, distort, median = reference.blend_surfels(
            seen, shown, given["opacities"], camera, WIDTH, HEIGHT, tile_size
        )
        image = image + left[..., None] * background
        if render_mode.endswith("ED"):
            image = torch.cat([image[..., :-1], image[..., -1:] / (1 - left)[..., None].clamp(min=1e-10)], -1)
        normals = normals @ torch.linalg.inv(viewmat)[:3, :3].T
        distort = distort if distloss else torch.zeros_like(distort)
        images.append((image, (1 - left)[..., None], normals, distort[..., None], median[..., None]))
    return [torch.stack(parts) for parts in zip(*images, strict=True)]


def ours(given, **options):
    inputs = [given[name] for name in NAMES]
    seen = rasterization_2dgs(*inputs, WIDTH, HEIGHT, backgrounds=given["backgrounds"], **options)
    return [seen.colors, seen.alphas, seen.normals, seen.distortion, seen.median]


def assert_agrees(engine, given, packed=False, **options):
    results = []
    cotangents = None
    for function, more in ((twin, {}), (ours, {"engine": engine, "packed": packed})):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}
        outputs = function(leaves, **options, **more)
        cotangents = cotangents or [torch.randn_like(y) for y in outputs]
        loss = sum((y * c).sum() for y, c in zip(outputs, cotangents, strict=True))
        slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
        results.append((outputs, slopes))
    (expected, wanted), (outputs, slopes) = results
    for name, y, one in zip(("colors", "alphas", "normals", "distortion", "median"), outputs, expected, strict=True):
        torch.testing.assert_close(y, one, **CLOSE, msg=lambda words, name=name: f"{name}: {words}")
    for name, slope, one in zip(given, slopes, wanted, strict=True):
        size = one.abs().max().clamp(min=1.0)
        torch.testing.assert_close(
            slope / size, one / size, **CLOSE, msg=lambda words, name=name: f"gradient of {name}: {words}"
        )
    return outputs, slopes


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
@pytest.mark.parametrize("distloss", [True, False])
def test_surfels_agree_with_the_twin(engine, packed, distloss):
    outputs, slopes = assert_agrees(engine, make_scene(cameras=2), packed, render_mode="RGB+D", distloss=distloss)
    assert outputs[1].max() > 0.5 and outputs[4].max() > 1
    assert (outputs[3].abs().max() > 0) == distloss
    assert all(slope.abs().max() > 0 for slope in slopes)


@pytest.mark.parametrize("render_mode", ["RGB", "D", "ED", "RGB+ED"])
def test_modes_agree_with_the_twin(engine, render_mode):
    assert_agrees(engine, make_scene(cameras=1), render_mode=render_mode)


@pytest.mark.costly
@pytest.mark.parametrize("channels", [1, 11])
def test_any_number_of_channels_agrees_with_the_twin(engine, channels):
    assert_agrees(engine, make_scene(cameras=1, channels=channels), distloss=True)


@pytest.mark.parametrize(
    "options", [{"near_plane": 3.2}, {"far_plane": 2.9}, {"radius_clip": 9.0}, {"tile_size": 7}], ids=str
)
def test_omitted_arguments_agree_with_the_twin(engine, options):
    given = make_scene(cameras=1)
    assert_agrees(engine, given, **options)


def test_small_surfels_do_not_vanish(engine):
    """Seen from far, or edge on, they are a bump of half a pixel's width."""
    given = make_scene(40)
    given["scales"] = given["scales"] * 0.03
    (_, alphas, *_), _ = assert_agrees(engine, given)
    assert alphas.max() > 0.1


def test_opaque_surfels_end_a_pixel(engine):
    given = make_scene(40)
    given["opacities"] = torch.full_like(given["opacities"], 0.9999)
    given["scales"] = given["scales"] * 4
    (_, alphas, *_), _ = assert_agrees(engine, given, distloss=True)
    assert alphas.max() > 0.999


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_nothing_visible_gives_the_background(engine, packed):
    given = make_scene()
    given["means"][:, 2] = -20.0
    (_, alphas, *_), _ = assert_agrees(engine, given, packed)
    assert alphas.abs().max() == 0


def a_wall():
    """Return surfels of a plane at depth 4 that leans, each of them in it."""
    y, x = torch.meshgrid(torch.linspace(-2, 2, 30), torch.linspace(-2, 2, 30), indexing="ij")
    lean = math.atan(0.5)
    means = torch.stack([x, y, 4 + 0.5 * x], -1).view(-1, 3).double()
    quats = torch.tensor([math.cos(-lean / 2), 0, math.sin(-lean / 2), 0], dtype=DOUBLE).expand(len(means), 4)
    scales = torch.full((len(means), 3), 0.1, dtype=DOUBLE)
    colors, opacities = torch.ones(len(means), 1, dtype=DOUBLE), torch.full((len(means),), 0.9, dtype=DOUBLE)
    camera = torch.tensor([[[60.0, 0, 20], [0, 60, 12], [0, 0, 1]]], dtype=DOUBLE)
    return means, quats, scales, opacities, colors, torch.eye(4, dtype=DOUBLE)[None], camera


def test_normals_of_a_wall(engine):
    """Rendered normals, and those of the surface, are the wall's, turned to the camera."""
    seen = rasterization_2dgs(*a_wall(), WIDTH, HEIGHT, render_mode="RGB+ED", depth_mode="median", engine=engine)
    normal = torch.tensor([0.5, 0.0, -1.0], dtype=DOUBLE) / math.sqrt(1.25)
    inside = seen.normals[0, 4:-4, 4:-4]
    directions = torch.nn.functional.normalize(inside, dim=-1)
    torch.testing.assert_close(directions, normal.expand_as(directions), rtol=0, atol=1e-9)
    # Depths of surfels' centers are a staircase, whose mean slope is that of the wall.
    surface = seen.surface_normals[0, 4:-4, 4:-4].mean((0, 1))
    assert (torch.nn.functional.normalize(surface, dim=0) @ normal).abs() > 0.95
    assert surface[2] < 0
    assert seen.surface_normals[0, 0].abs().max() == 0


def test_the_gradient_for_densification(engine):
    """The gradient of the third column of a transform, times the depth."""
    given = make_scene(cameras=1)
    inputs = [given[name].requires_grad_() for name in NAMES]
    seen = rasterization_2dgs(*inputs, WIDTH, HEIGHT, engine=engine)
    densify, transforms = seen.meta["gradient_2dgs"], seen.meta["ray_transforms"]
    loss = (seen.colors * torch.randn_like(seen.colors)).sum()
    gradient, slope = torch.autograd.grad(loss, [densify, transforms])
    expected = slope[..., :2, 2] * transforms[..., 2, 2:]
    torch.testing.assert_close(gradient, expected, **CLOSE)
    assert gradient.abs().max() > 0 and densify.shape == seen.meta["means2d"].shape


def test_the_parts_compose_to_the_whole(engine):
    given = make_scene()
    tensors = [given[name] for name in NAMES]
    options = {"packed": True, "engine": engine}
    seen = rasterization_2dgs(*tensors, WIDTH, HEIGHT, distloss=True, render_mode="RGB+D", **options)
    means, quats, scales, opacities, colors, viewmats, intrinsics = tensors
    projected = fully_fused_projection_2dgs(means, quats, scales, viewmats, intrinsics, WIDTH, HEIGHT, **options)
    _, _, ids, _, means2d, depths, transforms, normals = projected
    assert torch.equal(ids, seen.meta["gaussian_ids"])
    shown = torch.cat([colors[ids], depths[:, None]], 1)
    lists = (seen.meta["isect_offsets"], seen.meta["flatten_ids"])
    outputs = rasterize_to_pixels_2dgs(
        means2d, transforms, shown, opacities[ids], normals, None, WIDTH, HEIGHT, 16, *lists, distloss=True, **options
    )
    for one, other in zip(outputs, (seen.colors, seen.alphas, None, seen.distortion, seen.median), strict=True):
        if other is not None:
            torch.testing.assert_close(one, other, **CLOSE)


def test_sparse_gradients(engine):
    given = make_scene()
    inputs = [given[name].requires_grad_() for name in NAMES]
    slopes = []
    for sparse_grad in (False, True):
        seen = rasterization_2dgs(*inputs, WIDTH, HEIGHT, packed=True, sparse_grad=sparse_grad, engine=engine)
        slopes.append(torch.autograd.grad(seen.colors.square().sum(), inputs[:3]))
    for plain, sparse in zip(*slopes, strict=True):
        assert sparse.is_sparse
        torch.testing.assert_close(sparse.to_dense(), plain, **CLOSE)


def test_float32(engine):
    given = make_scene(60)
    outputs = ours({name: tensor.float() for name, tensor in given.items()}, engine=engine, distloss=True)
    for one, other in zip(outputs[:4], twin(given, distloss=True)[:4], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"absgrad": True}, ts.ArgumentError, "`rasterization_2dgs` has no absolute gradients"),
        ({"depth_mode": "mean"}, ts.ArgumentError, "`depth_mode` of `rasterization_2dgs` has an unknown value"),
        (
            {"quats": torch.zeros(24, 3, dtype=DOUBLE)},
            ts.ShapeError,
            "`quats` of `rasterization_2dgs` has the wrong shape",
        ),
        ({"backgrounds": torch.zeros(2, 4, dtype=DOUBLE)}, ts.ShapeError, "`backgrounds`"),
    ],
)
def test_refusals(change, error, words):
    with pytest.raises(error) as caught:
        rasterization_2dgs(**(make_scene() | {"width": WIDTH, "height": HEIGHT} | change))
    assert words in str(caught.value)
