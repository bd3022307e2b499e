"""What tests of decompositions of matrices share: how derivatives are compared, and random matrices."""

import pytest
import torch

SIDES = pytest.mark.parametrize("side", [2, 3])
KINDS = pytest.mark.parametrize("kind", ["f32", "f64"])
TOLERANCE = {"f32": {"rtol": 2e-3, "atol": 2e-3}, "f64": {"rtol": 1e-7, "atol": 1e-7}}
DTYPE = {"f32": torch.float32, "f64": torch.float64}


def build_decomposition(lang, side, kind):
    return lang.types.ndarray(dtype=lang.types.matrix(side, side, getattr(lang, kind)), ndim=1)


def draw_matrices(side, kind="f64", count=8):
    return torch.randn(count, side, side, dtype=torch.float64).to(DTYPE[kind])


def pull_back(function, x, weights):
    x = x.detach().clone().requires_grad_()
    outputs = function(x)
    return torch.autograd.grad(outputs, x, [w.to(o.dtype) for w, o in zip(weights, outputs, strict=True)])[0]


def assert_derivatives_agree(op, reference, x, kind="f64", *, is_symmetric=False, **tolerance):
    """Assert that values, gradients and tangents of an op agree with those of a torch function, in float64."""
    wide, limits = x.double(), tolerance or TOLERANCE[kind]
    expected = reference(wide)
    for actual, wanted in zip(op(x), expected, strict=True):
        torch.testing.assert_close(actual.double(), wanted, **limits)
    weights = [torch.randn_like(one) for one in expected]
    for k in range(len(weights)):  # one output after the other: what is not asked for has no part
        only = [weight * (k == j) for j, weight in enumerate(weights)]
        torch.testing.assert_close(pull_back(op, x, only).double(), pull_back(reference, wide, only), **limits)
    moved = torch.randn_like(wide)
    moved = (moved + moved.mT) / 2 if is_symmetric else moved
    _, actual = torch.func.jvp(lambda x: tuple(op(x)), (x,), (moved.to(x.dtype),))
    _, wanted = torch.func.jvp(reference, (wide,), (moved,))
    for one, other in zip(actual, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, **limits)


def separate_singular_values(x):
    """Change matrices so that singular values differ by 0.1 at least, which float32 can resolve."""
    u, s, vh = torch.linalg.svd(x.double())
    return (u @ torch.diag_embed(s + torch.arange(x.shape[-1], 0, -1) * 0.3) @ vh).to(x.dtype)
