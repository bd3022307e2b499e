"""The splatting kernel and its generated gradient against their twin in plain torch, in float64."""

from __future__ import annotations

import functools

import pytest
import torch

import tinsmith as ts
from tinsmith import reference
from tinsmith.kernels import splat

pytestmark = pytest.mark.thinned(4)

SPEC = "pos[n, 2], scale[n, 2], angle[n], color[n, 3], opacity[n] -> image[h, w, 3]"
NAMES = ("pos", "scale", "angle", "color", "opacity")


def gaussians(count: int, h: int, w: int) -> dict[str, torch.Tensor]:
    """Return random Gaussians of a few pixels, centered all over an image."""
    draw = torch.Generator().manual_seed(count)
    return {
        "pos": torch.rand(count, 2, generator=draw, dtype=torch.float64) * torch.tensor([w, h]),
        "scale": torch.exp(0.5 * torch.randn(count, 2, generator=draw, dtype=torch.float64)) * 2,
        "angle": torch.rand(count, generator=draw, dtype=torch.float64) * 7 - 3,
        "color": torch.randn(count, 3, generator=draw, dtype=torch.float64),
        "opacity": torch.rand(count, generator=draw, dtype=torch.float64) * 0.9 + 0.1,
    }


# What to change in the random Gaussians, and whether anything of them is to be seen then.
KINDS = {
    "plain": (lambda g, h, w: g, True),
    "most outside": (lambda g, h, w: g | {"pos": (g["pos"] - torch.tensor([w, h]) / 2) * 4}, True),
    "all outside": (lambda g, h, w: g | {"pos": g["pos"] + 1000}, False),
    "tiny, between centers": (lambda g, h, w: g | {"scale": g["scale"] * 1e-4}, False),
    "tiny, near a center": (lambda g, h, w: g | {"pos": g["pos"].floor() + 0.501, "scale": g["scale"] * 1e-3}, True),
    "huge": (lambda g, h, w: g | {"scale": g["scale"] * 1e4}, True),
    "needles": (lambda g, h, w: g | {"scale": g["scale"] * torch.tensor([0.02, 30])}, True),
    "round": (lambda g, h, w: g | {"scale": g["scale"][:, :1].repeat(1, 2)}, True),
    "opaque": (lambda g, h, w: g | {"opacity": g["opacity"] * 50}, True),
    "faint": (lambda g, h, w: g | {"opacity": g["opacity"] / 255}, False),
    "opacity of either sign": (lambda g, h, w: g | {"opacity": g["opacity"] - 0.5}, True),
    "one": (lambda g, h, w: {name: value[:1] for name, value in g.items()}, True),
    "none": (lambda g, h, w: {name: value[:0] for name, value in g.items()}, False),
}
SIZES = [(23, 31), (1, 40), (40, 1), (1, 1)]


@functools.cache
def built(lang, serial):
    return ts.op(SPEC, adjoint="source")(splat(lang, serial=serial))


@pytest.fixture(params=[True, False], ids=["serial", "parallel"])
def splat_op(lang, request):
    return built(lang, request.param)


@pytest.mark.parametrize(
    ("kind", "h", "w"), [*((kind, *SIZES[0]) for kind in KINDS), *(("plain", *size) for size in SIZES[1:])]
)
def test_values_and_gradients_agree_with_the_twin(splat_op, kind, h, w):
    change, seen = KINDS[kind]
    given = change(gaussians(60, h, w), h, w)
    weight = torch.randn(h, w, 3, dtype=torch.float64)
    ours, ours_grad = _image_and_gradients(splat_op, given, weight)
    twins, twins_grad = _image_and_gradients(reference.splat, given, weight)
    _assert_close(ours, twins, "image")
    for name in NAMES:
        _assert_close(ours_grad[name], twins_grad[name], f"gradient of {name}")
    if (h, w) == SIZES[0]:
        assert bool(twins.any()) == seen, "the case does not show what its name says"


def test_float32_agrees_with_the_twin(splat_op):
    given = {name: value.float() for name, value in gaussians(200, 33, 47).items()}
    image = splat_op(*given.values(), h=33, w=47)
    assert image.dtype == torch.float32
    # The edge of a Gaussian, 1/255 high, may fall on the other side of a pixel in float32.
    assert (image - reference.splat(**given, h=33, w=47)).abs().mean() < 1e-4


def test_the_serial_kernel_repeats_their_bits(lang):
    op = built(lang, serial=True)
    given = {name: value.float() for name, value in gaussians(500, 64, 64).items()}
    weight = torch.randn(64, 64, 3)
    image, gradients = _image_and_gradients(op, given, weight)
    for _ in range(5):
        again, gradients_again = _image_and_gradients(op, given, weight)
        assert torch.equal(image, again)
        assert all(torch.equal(gradients[name], gradients_again[name]) for name in NAMES)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 1e30])
@pytest.mark.parametrize("name", ["pos", "scale", "angle", "opacity"])
def test_a_broken_number_stays_within_the_image(lang, name, broken):
    splat_op = built(lang, serial=False)
    given = {key: value.float() for key, value in gaussians(8, 9, 9).items()}
    given[name] = torch.full_like(given[name], broken)
    # What the Gaussian looks like then is undefined; that the process lives, and its neighbors, is not.
    image, gradients = _image_and_gradients(splat_op, given, torch.ones(9, 9, 3))
    assert image.shape == (9, 9, 3)
    assert all(gradients[key].shape == given[key].shape for key in NAMES)


@pytest.mark.gpu
def test_on_cuda_they_agree_with_the_twin(lang):
    given = {name: value.cuda() for name, value in gaussians(500, 64, 48).items()}
    weight = torch.randn(64, 48, 3, dtype=torch.float64, device="cuda")
    ours, ours_grad = _image_and_gradients(built(lang, serial=False), given, weight)
    twins, twins_grad = _image_and_gradients(reference.splat, given, weight)
    _assert_close(ours, twins, "image")
    for name in NAMES:
        _assert_close(ours_grad[name], twins_grad[name], f"gradient of {name}")


def _image_and_gradients(op, given, weight):
    leaves = {name: value.clone().requires_grad_() for name, value in given.items()}
    image = op(*leaves.values(), h=weight.shape[0], w=weight.shape[1])
    gradients = torch.autograd.grad((image * weight).sum(), list(leaves.values()))
    return image.detach(), dict(zip(leaves, gradients, strict=True))


def _assert_close(ours, twins, what):
    scale = twins.abs().max().item() if twins.numel() else 0.0
    tolerance = {"rtol": 1e-9, "atol": 1e-11 * scale + 1e-14}
    torch.testing.assert_close(ours, twins, **tolerance, msg=lambda words: f"{what}: {words}")
