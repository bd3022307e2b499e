"""SSIM: scikit-image's numbers, a loop over windows, gradients; and the loss made of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tinsmith as ts
from tinsmith.render import l1_ssim_loss, ssim


def _pattern():
    y, x = np.mgrid[0:24, 0:32]
    waves = [np.sin(0.3 * x + 0.1 * y), np.cos(0.2 * y - 0.05 * x), np.sin(0.11 * x * y)]
    return np.stack(waves, -1) * 0.5 + 0.5, np.sin(1.7 * x + 2.3 * y)[..., None] * np.array([1, 0.5, 0.25])


# scikit-image 0.26: structural_similarity(..., gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
# data_range=1), whose window and mean are those of the paper.
SSIMS = {
    "noise": (lambda a, noise: np.clip(a + 0.2 * noise, 0, 1), 0.8275366799691793),
    "upside down": (lambda a, _: a[::-1].copy(), 0.013647808830462472),
    "negative": (lambda a, _: 1 - a, -0.6420337798961383),
    "darker": (lambda a, _: 0.5 * a, 0.648604932123717),
    "black": (lambda a, _: np.zeros_like(a), 0.0011745656351645581),
    "itself": (lambda a, _: a, 1.0),
}


@pytest.mark.parametrize("name", SSIMS)
def test_ssim_is_that_of_scikit_image(name):
    how, expected = SSIMS[name]
    picture, noise = _pattern()
    one, other = torch.tensor(picture), torch.tensor(how(picture, noise))
    for pair in ((one, other), (other, one)):
        assert ssim(*pair).item() == pytest.approx(expected, abs=1e-12)
        assert ssim(*(255 * side for side in pair), data_range=255).item() == pytest.approx(expected, abs=1e-12)
        assert ssim(*(side.float() for side in pair)).item() == pytest.approx(expected, abs=2e-5)


def by_hand(x, y):
    """Compute the mean of equation 13 over all windows, one by one."""
    window = torch.tensor([math.exp(-((i - 5) ** 2) / 4.5) for i in range(11)], dtype=torch.float64)
    window = torch.outer(window, window)[..., None]
    window = window / window.sum()
    values = []
    for row in range(x.shape[0] - 10):
        for column in range(x.shape[1] - 10):
            a, b = (side[row : row + 11, column : column + 11] for side in (x, y))
            mean_a, mean_b = ((window * side).sum((0, 1)) for side in (a, b))
            var_a, var_b = ((window * (s - m) ** 2).sum((0, 1)) for s, m in ((a, mean_a), (b, mean_b)))
            both = (window * (a - mean_a) * (b - mean_b)).sum((0, 1))
            structure = (2 * both + 9e-4) / (var_a + var_b + 9e-4)
            values.append((2 * mean_a * mean_b + 1e-4) / (mean_a**2 + mean_b**2 + 1e-4) * structure)
    return torch.stack(values).mean()


@pytest.mark.parametrize("shape", [(13, 12, 1), (11, 11, 3), (2, 3, 12, 14, 5)], ids=str)
def test_values_and_gradients_are_those_of_a_loop_over_windows(shape):
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.rand(shape, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(2))
    values = ssim(x, y)
    assert values.shape == shape[:-3]
    pairs = zip(x.reshape(-1, *shape[-3:]), y.reshape(-1, *shape[-3:]), strict=True)
    slow = torch.stack([by_hand(*pair) for pair in pairs])
    torch.testing.assert_close(values.flatten(), slow, rtol=1e-10, atol=1e-12)
    weights = torch.rand(values.numel(), generator=draw, dtype=torch.float64)
    ours = torch.autograd.grad((values.flatten() * weights).sum(), (x, y))
    theirs = torch.autograd.grad((slow * weights).sum(), (x, y))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_ssim_of_even_pictures_is_of_their_means():
    one, other = torch.full((11, 11, 1), 0.3), torch.full((11, 11, 1), 0.8)
    expected = (2 * 0.3 * 0.8 + 1e-4) / (0.09 + 0.64 + 1e-4)
    assert ssim(one, other).item() == pytest.approx(expected, abs=1e-4)


def test_the_loss_is_its_formula():
    draw = torch.Generator().manual_seed(2)
    x, y = (torch.rand(2, 12, 13, 3, generator=draw, dtype=torch.float64) for _ in range(2))
    absolute, alike = (x - y).abs().mean(), ssim(x, y).mean()
    for weight in (0.0, 0.2, 1.0):
        expected = (1 - weight) * absolute + weight * (1 - alike)
        torch.testing.assert_close(l1_ssim_loss(x, y, ssim_weight=weight), expected)
    torch.testing.assert_close(l1_ssim_loss(x, y), 0.8 * absolute + 0.2 * (1 - alike))
    small = torch.zeros(11, 11, 2, dtype=torch.float64) + 0.3
    small[5] += 0.2
    assert torch.autograd.gradcheck(l1_ssim_loss, (small.requires_grad_(), small.detach().flip(0) * 0.9))


REFUSED = [
    (lambda: ssim(torch.zeros(10, 11, 1), torch.zeros(10, 11, 1)), ts.ShapeError, "11 pixels or more"),
    (lambda: ssim(torch.zeros(12, 11, 1), torch.zeros(11, 11, 1)), ts.ShapeError, r"targets +\(11, 11, 1\)"),
    (
        lambda: l1_ssim_loss(torch.zeros(20, 20), torch.zeros(20, 20)),
        ts.ShapeError,
        "of `l1_ssim_loss` have the wrong shapes",
    ),
    (lambda: ssim(torch.zeros(11, 11, 1).byte(), torch.zeros(11, 11, 1).byte()), ts.DtypeError, "pixels / 255"),
    (lambda: ssim(torch.zeros(11, 11, 1), torch.zeros(11, 11, 1).double()), ts.DtypeError, "not both float32"),
    (lambda: ssim(torch.zeros(11, 11, 1), torch.zeros(11, 11, 1), data_range=0), ts.ArgumentError, "not above 0"),
    (lambda: l1_ssim_loss(torch.zeros(11, 11, 1), torch.zeros(11, 11, 1), ssim_weight=2), ts.ArgumentError, "0 to 1"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_invalid_arguments_are_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()
