"""A length's derivative at 0 is 0, as torch's; with something added below the root it is a root like any other."""

import pytest
import torch

from support.interpreted import run_with_gradients
from support.roundtrip import lower_kernel, print_lowered


def _norms(lang):
    vec2 = lang.types.vector(2, lang.f64)

    @lang.kernel
    def kernel(p: lang.types.ndarray(dtype=vec2, ndim=1), y: lang.types.ndarray(ndim=2)):
        for i in p:
            y[i, 0] = p[i].norm()
            y[i, 1] = lang.math.length(p[i] * 2)
            y[i, 2] = lang.math.distance(p[i], lang.Vector([1.0, 0.0]))
            y[i, 3] = p[i].norm(0.25)
            y[i, 4] = lang.Matrix([[p[i].x, 1.0], [0.0, p[i].y]]).norm()

    return kernel


def test_values_and_derivatives(lang64):
    p, y = torch.randn(4, 2, dtype=torch.float64), torch.zeros(4, 5, dtype=torch.float64)
    p[1], p[2] = 0, torch.tensor([1.0, 0.0])
    kernel = _norms(lang64)
    weights = torch.randn(4, 5, dtype=torch.float64)
    mine = run_with_gradients(lower_kernel(kernel, p, y).kernel, {"p": p, "y": y}, {}, {"y": weights})
    leaf = p.clone().requires_grad_()
    length = torch.linalg.vector_norm
    wanted = torch.stack(
        [
            length(leaf, dim=1),
            length(leaf * 2, dim=1),
            length(leaf - torch.tensor([1.0, 0.0]), dim=1),
            (leaf.square().sum(1) + 0.25).sqrt(),
            (leaf.square().sum(1) + 1).sqrt(),
        ],
        1,
    )
    wanted.backward(weights)
    kernel(p, y)
    torch.testing.assert_close(y, wanted.detach())
    torch.testing.assert_close(mine.arrays["y"], wanted.detach())
    torch.testing.assert_close(mine.gradients["p"], leaf.grad)
    assert mine.gradients["p"].isfinite().all()


def test_norms_are_printed_as_square_roots(lang64):
    shown = print_lowered(_norms(lang64), torch.zeros(4, 2).double(), torch.zeros(4, 5).double())
    assert shown.count("= _lang.sqrt(") == 5
    assert "norm" not in shown


@pytest.mark.parametrize("real", [torch.float32, torch.float64])
def test_a_normalized_vector(lang, real):
    kind = lang.f32 if real == torch.float32 else lang.f64
    vec2 = lang.types.vector(2, kind)

    @lang.kernel
    def kernel(p: lang.types.ndarray(dtype=vec2, ndim=1), q: lang.types.ndarray(dtype=vec2, ndim=1)):
        for i in p:
            q[i] = p[i].normalized() + lang.math.normalize(p[i] + 1)

    p = torch.rand(5, 2, dtype=real) + 0.1
    q = torch.zeros_like(p)
    cotangent = torch.randn(5, 2).double()
    mine = run_with_gradients(lower_kernel(kernel, p, q).kernel, {"p": p, "q": q}, {}, {"q": cotangent})
    leaf = p.double().requires_grad_()
    wanted = torch.nn.functional.normalize(leaf) + torch.nn.functional.normalize(leaf + 1)
    wanted.backward(cotangent)
    torch.testing.assert_close(mine.arrays["q"], wanted.detach())
    torch.testing.assert_close(mine.gradients["p"], leaf.grad)
