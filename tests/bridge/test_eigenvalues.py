"""`sym_eig`, `make_spd`, `eig` and `solve` in kernels: derivatives against matrix functions that need none of them.

With A = Q W Q^T, `Q W^3 Q^T` is `A^3`: whatever the order and the signs.
"""

import pytest
import torch

import tinsmith as ts
from support.decompositions import (
    KINDS,
    SIDES,
    TOLERANCE,
    assert_derivatives_agree,
    build_decomposition,
    draw_matrices,
    pull_back,
)


def eigen_op(lang, side, kind="f64"):
    real, given = getattr(lang, kind), build_decomposition(lang, side, kind)
    vectors = lang.types.ndarray(dtype=lang.types.vector(side, real), ndim=1)

    @ts.op("x[n, k, k] -> w[n, k], cube[n, k, k]", adjoint="source")
    @lang.kernel
    def by_eigen(x: given, w: vectors, cube: given):
        for i in x:
            values, q = lang.sym_eig(x[i], real)
            w[i] = values
            diagonal = lang.Matrix.zero(real, side, side)
            for k in lang.static(range(side)):
                diagonal[k, k] = values[k]
            cube[i] = q @ diagonal @ diagonal @ diagonal @ q.transpose()

    return by_eigen


def reference_of_eigen(x):
    x = (x + x.mT) / 2
    return torch.linalg.eigvalsh(x), x @ x @ x


def symmetric(side, kind):
    x = draw_matrices(side, kind)
    q = torch.linalg.qr(x.double()).Q
    w = torch.arange(side) + torch.rand(len(x), side, dtype=torch.float64) / 2
    return (q @ torch.diag_embed(w) @ q.mT).to(x.dtype)


@pytest.mark.thinned(4)
@SIDES
@KINDS
def test_sym_eig(side, kind, lang, engine):
    is_down = engine == "taichi" and side == 2
    x = symmetric(side, kind)
    x = (x + x.mT) / 2

    def reference(x):
        values, cube = reference_of_eigen(x)
        return (values.flip(-1) if is_down else values), cube

    # Taichi solves the cubic equation: its eigenvalues of float64 are right to float32 only.
    is_rough = engine == "taichi" and side == 3 and kind == "f64"
    limits = {"rtol": 1e-4, "atol": 1e-4} if is_rough else TOLERANCE[kind]
    assert_derivatives_agree(eigen_op(lang, side, kind), reference, x, kind, is_symmetric=True, **limits)


@pytest.mark.each_engine
def test_more_rows(lang, engine):
    """Quadrants has symmetric matrices of up to six rows."""
    if engine != "quadrants":
        pytest.skip("Taichi has three rows at most")
    x = symmetric(5, "f64")[:2]
    assert_derivatives_agree(eigen_op(lang, 5), reference_of_eigen, (x + x.mT) / 2, is_symmetric=True)


@pytest.mark.each_engine
@SIDES
def test_make_spd(side, lang, engine):
    """Also where eigenvalues are equal: of a positive definite matrix it is the identity."""
    if engine != "quadrants":
        pytest.skip("Taichi has none")
    real, given = lang.f64, build_decomposition(lang, side, "f64")

    @ts.op("x[n, k, k] -> y[n, k, k]", adjoint="source")
    @lang.kernel
    def projected(x: given, y: given):
        for i in x:
            y[i] = lang.make_spd(x[i], real)

    def reference(x):
        w, q = torch.linalg.eigh((x + x.mT) / 2)
        return (q @ torch.diag_embed(w.clamp_min(0)) @ q.mT,)

    op, x = (lambda x: (projected(x),)), draw_matrices(side)
    x = x + x.mT
    weight = [torch.randn_like(x)]
    torch.testing.assert_close(pull_back(op, x, weight), pull_back(reference, x, weight))
    moved = torch.randn_like(x)
    moved = moved + moved.mT
    tangents = [torch.func.jvp(one, (x,), (moved,))[1][0] for one in (op, reference)]
    torch.testing.assert_close(*tangents)
    eyes = torch.eye(side, dtype=x.dtype).expand_as(x) * torch.arange(-3, 5)[:, None, None]
    wanted = (weight[0] + weight[0].mT) / 2 * (torch.arange(-3, 5) > 0)[:, None, None]
    torch.testing.assert_close(pull_back(op, eyes, weight), wanted)
    for given_ in (x, eyes):
        answer = ts.oracle(projected, given_, cotangents=weight[0])
        torch.testing.assert_close(pull_back(op, given_, weight), answer.gradients["x"])


@SIDES
def test_solve_inverse_and_determinant(side, lang):
    """What engines write in their own language has derivatives too, from that source."""
    real, given = lang.f64, build_decomposition(lang, side, "f64")
    vectors = lang.types.ndarray(dtype=lang.types.vector(side, real), ndim=1)

    @ts.op("x[n, k, k], b[n, k] -> y[n, k], z[n, k, k], d[n]", adjoint="source")
    @lang.kernel
    def solved(x: given, b: vectors, y: vectors, z: given, d: lang.types.ndarray()):
        for i in x:
            y[i] = lang.solve(x[i], b[i], real)
            z[i] = x[i].inverse()
            d[i] = x[i].determinant()

    x, b = draw_matrices(side), torch.randn(8, side, dtype=torch.float64)
    assert_derivatives_agree(
        lambda x: solved(x, b), lambda x: (torch.linalg.solve(x, b), torch.linalg.inv(x), torch.linalg.det(x)), x
    )


@pytest.mark.parametrize("is_real", [True, False], ids=["real", "complex"])
def test_eig(is_real, lang):
    real, given = lang.f64, build_decomposition(lang, 2, "f64")

    @ts.op("x[n, 2, 2] -> w[n, 2, 2]", adjoint="source")
    @lang.kernel
    def values_of(x: given, w: given):
        for i in x:
            values, _ = lang.eig(x[i], real)
            w[i] = values

    def reference(x):
        trace, det = x.diagonal(dim1=-2, dim2=-1).sum(-1), torch.linalg.det(x)
        root = (trace**2 - 4 * det).abs().sqrt() / 2
        still = torch.zeros_like(root)
        parts = (trace / 2 + root, still, trace / 2 - root, still) if is_real else (trace / 2, root, trace / 2, -root)
        return (torch.stack(parts, -1).reshape(-1, 2, 2),)

    x = draw_matrices(2, count=64)
    gap = (x[:, 0, 0] - x[:, 1, 1]) ** 2 + 4 * x[:, 0, 1] * x[:, 1, 0]
    assert_derivatives_agree(lambda x: (values_of(x),), reference, x[gap > 0.1 if is_real else gap < -0.1])
