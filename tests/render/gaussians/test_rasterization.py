"""Rasterization against its twin: values, and the gradients of everything that has one."""

from __future__ import annotations

import enum
import inspect
import re

import pytest
import torch

import tinsmith as ts
from support.gaussians import HEIGHT, WIDTH, make_scene
from tinsmith import passes, reference
from tinsmith.render.gaussians import rasterization, rasterization_2dgs

pytestmark = pytest.mark.thinned(4)

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def make_leaves(given):
    return {name: tensor.clone().requires_grad_() for name, tensor in given.items()}


def run_and_differentiate(function, given, options, cotangents=None):
    """Return image and alpha, and the gradient in each argument."""
    inputs = make_leaves(given)
    named = {name: inputs[name] for name in inputs if name in ("backgrounds", "covars")}
    names = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks")
    outputs = function(*(inputs.get(name) for name in names), WIDTH, HEIGHT, **named, **options)[:2]
    if cotangents is None:
        cotangents = [torch.randn_like(y) for y in outputs]
    loss = sum((y * c).sum() for y, c in zip(outputs, cotangents, strict=True))
    slopes = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True, materialize_grads=True)
    return outputs, dict(zip(inputs, slopes, strict=True)), cotangents


def assert_agrees(engine, given, packed=True, tile_size=None, **options):
    by_twin = options | ({} if tile_size is None else {"tile_size": tile_size})
    twins, expected, cotangents = run_and_differentiate(reference.rasterize_gaussians, given, by_twin)
    ours_options = by_twin | {"engine": engine, "packed": packed}
    ours, slopes, _ = run_and_differentiate(rasterization, given, ours_options, cotangents)
    for name, y, twin in zip(("image", "alpha"), ours, twins, strict=True):
        torch.testing.assert_close(y, twin, **CLOSE, msg=lambda words, name=name: f"{name}: {words}")
    for name, slope in slopes.items():
        scale = expected[name].abs().max().clamp(min=1.0)
        torch.testing.assert_close(
            slope / scale,
            expected[name] / scale,
            **CLOSE,
            msg=lambda words, name=name: f"gradient of {name}: {words}",
        )
    return ours, slopes


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
@pytest.mark.parametrize("cameras", [1, 3])
def test_colors_agree_with_the_twin(engine, packed, cameras):
    ours, slopes = assert_agrees(engine, make_scene(cameras=cameras), packed)
    assert 0.1 < ours[1].max() <= 1 and ours[1].min() < 0.1
    assert all(slope.abs().max() > 0 for slope in slopes.values())


@pytest.mark.parametrize("render_mode", ["D", "ED", "RGB+D", "RGB+ED"])
def test_depths_agree_with_the_twin(engine, render_mode):
    assert_agrees(engine, make_scene(), render_mode=render_mode)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
@pytest.mark.parametrize("camera_model", ["pinhole", "ortho", "fisheye"])
def test_camera_models_agree_with_the_twin(engine, camera_model, packed):
    given = make_scene()
    if camera_model == "ortho":
        given["Ks"][:, :2, :2] *= 0.4
    assert_agrees(engine, given, packed, camera_model=camera_model)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
@pytest.mark.parametrize("camera_model", ["pinhole", "fisheye"])
def test_antialiased_agrees_with_the_twin(engine, packed, camera_model):
    given = make_scene()
    given["scales"] = given["scales"] * 0.2  # small in the image, where it makes a difference
    (classic, _), _ = assert_agrees(engine, given, packed, camera_model=camera_model)
    (image, _), _ = assert_agrees(engine, given, packed, camera_model=camera_model, rasterize_mode="antialiased")
    assert (image - classic).abs().max() > 0.01


@pytest.mark.parametrize("channels", [1, 2, 8, 9, 19])
def test_any_number_of_channels_agrees_with_the_twin(engine, channels):
    assert_agrees(engine, make_scene(channels=channels))


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_colors_of_each_camera_agree_with_the_twin(engine, packed):
    assert_agrees(engine, make_scene(per_camera=True), packed)
    assert_agrees(engine, make_scene(per_camera=True, sh_degree=1), packed, sh_degree=1)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4])
def test_harmonics_agree_with_the_twin(engine, degree, packed):
    assert_agrees(engine, make_scene(sh_degree=degree), packed, sh_degree=degree)


def test_a_lower_degree_leaves_later_coefficients_alone(engine):
    given = make_scene(sh_degree=3)
    _, slopes = assert_agrees(engine, given, sh_degree=1, render_mode="RGB+ED")
    assert slopes["colors"][:, 4:].abs().max() == 0 < slopes["colors"][:, :4].abs().max()


@pytest.mark.parametrize(
    "options",
    [{"near_plane": 3.2}, {"far_plane": 2.9}, {"radius_clip": 8.0}, {"eps2d": 0.0}, {"eps2d": 2.0}],
    ids=str,
)
def test_omitted_arguments_agree_with_the_twin(engine, options):
    given = make_scene()
    (plain, _), _ = assert_agrees(engine, given)
    (image, _), _ = assert_agrees(engine, given, **options)
    assert (image - plain).abs().max() > 1e-3


@pytest.mark.parametrize("tile_size", [4, 7, 64])
def test_tile_sizes_agree_with_the_twin(engine, tile_size):
    assert_agrees(engine, make_scene(), tile_size=tile_size)


def test_covariances_agree_with_the_twin(engine):
    given = make_scene()
    given["covars"] = reference.gaussian_covariance(given.pop("quats"), given.pop("scales"))
    inputs = given | {"covars": (given["covars"] + given["covars"].mT) / 2}
    ours, slopes, cotangents = run_and_differentiate(rasterization, inputs, {"engine": engine})
    twins, expected, _ = run_and_differentiate(reference.rasterize_gaussians, inputs, {}, cotangents)
    torch.testing.assert_close(ours[0], twins[0], **CLOSE)
    # Ours reads the upper triangle: an entry off the diagonal gets what the twin gives to two.
    folded = expected["covars"].triu() + expected["covars"].mT.triu(1)
    torch.testing.assert_close(slopes["covars"], folded, rtol=1e-9, atol=1e-9 * folded.abs().max().item())


def test_opaque_gaussians_end_a_pixel(engine):
    given = make_scene(40)
    given["opacities"] = torch.full_like(given["opacities"], 0.9999)
    given["scales"] = given["scales"] * 4
    ours, _ = assert_agrees(engine, given)
    assert ours[1].max() > 0.999


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_nothing_visible_gives_the_background(engine, packed):
    given = make_scene()
    given["means"][:, 2] = -20.0
    ours, slopes = assert_agrees(engine, given, packed)
    assert ours[1].abs().max() == 0
    assert slopes["means"].abs().max() == 0


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_no_gaussian_at_all(engine, packed):
    given = {name: tensor[:0] for name, tensor in make_scene().items()} | {
        name: tensor for name, tensor in make_scene().items() if name in ("viewmats", "Ks", "backgrounds")
    }
    inputs = make_leaves(given)
    backgrounds = inputs.pop("backgrounds")
    image, alpha, meta = rasterization(
        *inputs.values(), WIDTH, HEIGHT, backgrounds=backgrounds, packed=packed, engine=engine
    )
    assert torch.equal(image, backgrounds[:, None, None].expand_as(image)) and alpha.abs().max() == 0
    assert len(meta["flatten_ids"]) == 0
    slopes = torch.autograd.grad(image.sum(), [backgrounds, *inputs.values()], allow_unused=True)
    assert (slopes[0] == WIDTH * HEIGHT).all()


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_batches_of_scenes(engine, packed):
    """One call of two scenes is two calls."""
    scenes = [make_scene(cameras=2) for _ in range(2)]
    stacked = {name: torch.stack([one[name] for one in scenes]) for name in scenes[0]}
    options = {"engine": engine, "packed": packed, "render_mode": "RGB+ED"}
    ours, slopes, cotangents = run_and_differentiate(rasterization, stacked, options)
    for b, one in enumerate(scenes):
        alone, expected, _ = run_and_differentiate(rasterization, one, options, [c[b] for c in cotangents])
        torch.testing.assert_close(ours[0][b], alone[0], **CLOSE)
        torch.testing.assert_close(ours[1][b], alone[1], **CLOSE)
        for name, slope in slopes.items():
            torch.testing.assert_close(slope[b], expected[name], rtol=1e-9, atol=1e-9)


@pytest.fixture
def in_lanes(configure, monkeypatch):
    """Return the names of kernels that run in lanes; all run in parallel here, since small loops would not."""
    configure(serial_below="0")
    kernel_names, real = [], passes.run_in_lanes

    def run_in_lanes(task, kernel, names, **options):
        lanes = real(task, kernel, names, **options)
        kernel_names.extend([kernel.name] if lanes is not None else [])
        return lanes

    monkeypatch.setattr(passes, "run_in_lanes", run_in_lanes)
    return kernel_names


@pytest.mark.parametrize("channels", [6, 7])  # as no other test has: nothing of it is compiled yet
def test_float32(engine, channels, in_lanes):
    """Blending and its gradient run in lanes; both are the twin's in float64 but for digits."""
    given = make_scene(60, channels=channels)
    twins, expected, cotangents = run_and_differentiate(reference.rasterize_gaussians, given, {})
    single = {name: tensor.float() for name, tensor in given.items()}
    ours, slopes, _ = run_and_differentiate(rasterization, single, {"engine": engine}, [c.float() for c in cotangents])
    torch.testing.assert_close(ours[0].double(), twins[0], rtol=1e-4, atol=2e-4)
    for name, slope in slopes.items():
        size = expected[name].abs().max()
        torch.testing.assert_close(slope.double() / size, expected[name] / size, rtol=1e-3, atol=1e-3)
    assert {"gaussian_blend_forward_0", "gaussian_blend_adjoint_0"} <= {*in_lanes}


def test_on_each_device(engine, device):
    given = make_scene()
    twins, expected, cotangents = run_and_differentiate(reference.rasterize_gaussians, given, {})
    there = {name: tensor.to(device) for name, tensor in given.items()}
    ours, slopes, _ = run_and_differentiate(
        rasterization, there, {"engine": engine}, [c.to(device) for c in cotangents]
    )
    torch.testing.assert_close(ours[0].cpu(), twins[0], **CLOSE)
    for name, slope in slopes.items():
        size = expected[name].abs().max()
        torch.testing.assert_close(slope.cpu() / size, expected[name] / size, **CLOSE)


@pytest.mark.costly
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_compiled_it_stays_one_graph_for_any_number_of_gaussians(engine, packed):
    def light(means, *others):
        images, alphas, _ = rasterization(
            means, *others, WIDTH, HEIGHT, render_mode="RGB+ED", packed=packed, engine=engine
        )
        return images.square().sum() + alphas.sin().sum()

    compiled = torch.compile(light, fullgraph=True, backend="aot_eager")
    for count in (24, 15):
        inputs = list(make_leaves(make_scene(count)).values())[:-1]
        gradients = torch.autograd.grad(compiled(*inputs), inputs)
        for slope, plain in zip(gradients, torch.autograd.grad(light(*inputs), inputs), strict=True):
            torch.testing.assert_close(slope, plain, **CLOSE)


class _Shutter(enum.Enum):
    """As gsplat's."""

    ROLLING_TOP_TO_BOTTOM = 0
    GLOBAL = 4


GSPLAT = """near_plane far_plane radius_clip eps2d sh_degree packed tile_size backgrounds render_mode sparse_grad
    absgrad rasterize_mode channel_chunk distributed camera_model segmented covars with_ut with_eval3d radial_coeffs
    tangential_coeffs thin_prism_coeffs ftheta_coeffs rolling_shutter viewmats_rs""".split()
DEFAULTS = [0.01, 1e10, 0.0, 0.3, None, True, 16, None, "RGB", False, False, "classic", 32, False, "pinhole", False]
DEFAULTS += [None, False, False, None, None, None, None, _Shutter.GLOBAL, None]
SURFEL_OPTIONS = [*GSPLAT[:11], "distloss", "depth_mode"]


@pytest.mark.parametrize(("function", "names"), [(rasterization, GSPLAT), (rasterization_2dgs, SURFEL_OPTIONS)])
def test_options_are_in_the_order_of_gsplat(function, names):
    parameters = list(inspect.signature(function).parameters.values())
    given = [one.name for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert given[9:] == names


def test_defaults_of_gsplat_are_taken_by_position_and_by_name(engine):
    given = list(make_scene().values())[:7]
    plain = rasterization(*given, WIDTH, HEIGHT, engine=engine)[0]
    torch.testing.assert_close(rasterization(*given, WIDTH, HEIGHT, *DEFAULTS, engine=engine)[0], plain, rtol=0, atol=0)
    named = dict(zip(GSPLAT, DEFAULTS, strict=True)) | {"channel_chunk": 2, "segmented": True}
    torch.testing.assert_close(rasterization(*given, WIDTH, HEIGHT, **named, engine=engine)[0], plain, rtol=0, atol=0)
    near = rasterization(*given, WIDTH, HEIGHT, 3.0, engine=engine)[0]
    torch.testing.assert_close(near, rasterization(*given, WIDTH, HEIGHT, near_plane=3.0, engine=engine)[0])
    assert (near - plain).abs().max() > 0.01


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("distributed", True, ("True", "its own cameras")),
        ("with_ut", True, ("leave it out",)),
        ("with_eval3d", True, ("leave it out",)),
        ("radial_coeffs", torch.zeros(2, 6), (r"a tensor \(2, 6\)", "load_colmap")),
        ("tangential_coeffs", torch.zeros(2, 2), ("Undistort",)),
        ("thin_prism_coeffs", torch.zeros(2, 4), ("Undistort",)),
        ("ftheta_coeffs", object(), ("Undistort",)),
        ("rolling_shutter", _Shutter.ROLLING_TOP_TO_BOTTOM, ("ROLLING_TOP_TO_BOTTOM", "one pose")),
        ("viewmats_rs", torch.eye(4)[None], ("one pose",)),
    ],
)
def test_other_values_of_options_of_gsplat_are_refused_by_name(name, value, words):
    with pytest.raises(ts.ArgumentError, match=f"`{name}` of `rasterization` is not supported") as caught:
        rasterization(*list(make_scene().values())[:7], WIDTH, HEIGHT, **{name: value})
    for word in words:
        assert re.search(word, str(caught.value))
