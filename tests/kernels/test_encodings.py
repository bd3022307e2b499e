"""The kernels of encodings and their generated derivatives against their twins, in float64."""

from __future__ import annotations

import functools

import pytest
import torch

import tinsmith as ts
from tinsmith import kernels, reference

# Name, option, its values, columns a number (or a direction).
ROWS = [
    ("frequency", "n_frequencies", 1, lambda n: 2 * n),
    ("frequency", "n_frequencies", 12, lambda n: 2 * n),
    ("triangle_wave", "n_frequencies", 12, lambda n: n),
    ("one_blob", "n_bins", 1, lambda n: n),
    ("one_blob", "n_bins", 16, lambda n: n),
    ("one_blob", "n_bins", 5, lambda n: n),
    *[("spherical_harmonics", "degree", degree, lambda n: n * n / 3) for degree in (1, 2, 4, 8)],
]


@functools.cache
def built(lang, fp, name, option, size, columns):
    kernel = getattr(kernels, name)(lang, fp=fp, **{option: size})
    return ts.op(f"x[n, d] -> y[n, {round(3 * columns(size))}]", init={"y": "empty"}, adjoint="source")(kernel)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[2]}")
def test_values_and_gradients_agree_with_the_twin(lang, row):
    op, twin = built(lang, "f64", *row), functools.partial(getattr(reference, row[0]), **{row[1]: row[2]})
    x = torch.rand(40, 3, dtype=torch.float64)
    x[5:10] = 4 * x[5:10] - 2  # outside of [0, 1]
    x[0] = 0.5
    ours, twins = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = op(ours), twin(twins)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-11)
    weight = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, ours, weight)
    (of_the_twin,) = torch.autograd.grad(expected, twins, weight)
    torch.testing.assert_close(gradient, of_the_twin, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("row", [ROWS[1], ROWS[4], ROWS[8]], ids=["frequency", "one_blob", "spherical_harmonics"])
def test_second_derivatives_agree_with_the_twin(lang, row):
    op, twin = built(lang, "f64", *row), functools.partial(getattr(reference, row[0]), **{row[1]: row[2]})
    x = torch.rand(6, 3, dtype=torch.float64, requires_grad=True)

    def steepness(function):
        (slope,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    torch.testing.assert_close(steepness(op), steepness(twin), rtol=1e-9, atol=1e-9)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[2]}")
def test_float32_agrees_with_the_twin_in_float64(lang64, row):
    """Where plain literals are float64: nothing is rounded on the way, and nothing warns."""
    op, twin = built(lang64, "f32", *row), functools.partial(getattr(reference, row[0]), **{row[1]: row[2]})
    x = torch.rand(40, 3)
    y = op(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), twin(x.double()), rtol=1e-3, atol=1e-3)


def test_the_angles_of_high_frequencies_are_exact(lang):
    """Up to 8192 pi: multiplied by a rounded pi, as Quadrants' fast_math would have it, 4e-4 were wrong."""
    op, x = built(lang, "f32", *ROWS[1]), 8 * torch.rand(500, 3) - 4
    x[:100] = (16 * x[:100]).round() / 16
    x.requires_grad_()
    y, twins = op(x), x.detach().double().requires_grad_()
    expected = reference.frequency(twins, 12)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=3e-6)
    weight = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, x, weight)
    (of_the_twin,) = torch.autograd.grad(expected, twins, weight.double())
    torch.testing.assert_close(gradient.double(), of_the_twin, rtol=0, atol=3e-6 * of_the_twin.abs().max().item())


@pytest.mark.parametrize("fp", ["f32", "f64"])
def test_nan_positions_give_nan(lang, fp):
    dtype = torch.float32 if fp == "f32" else torch.float64
    x = torch.tensor([[float("inf"), 0.5, 0.2], [float("nan"), -float("inf"), 0.2]], dtype=dtype)
    y = built(lang, fp, *ROWS[1])(x)
    assert torch.equal(y.isnan(), reference.frequency(x, 12).isnan())
