"""`svd` and `polar_decompose` in kernels: derivatives against matrix functions that need none of them.

With A = U S V^T, `U S^3 V^T` is `A A^T A`: whatever the order and the signs, and where values are reflected or 0.
Rotations are compared with Newton's iteration for the polar decomposition.
"""

import pytest
import torch

import tinsmith as ts
from support.decompositions import (
    DTYPE,
    KINDS,
    SIDES,
    TOLERANCE,
    assert_derivatives_agree,
    build_decomposition,
    draw_matrices,
    pull_back,
    separate_singular_values,
)

pytestmark = pytest.mark.thinned(4)


def svd_op(lang, side, kind="f64"):
    real, given = getattr(lang, kind), build_decomposition(lang, side, kind)

    @ts.op("x[n, k, k] -> r[n, k, k], odd[n, k, k], even[n, k, k], s[n, k, k]", adjoint="source")
    @lang.kernel
    def by_svd(x: given, r: given, odd: given, even: given, s: given):
        for i in x:
            u, sigma, v = lang.svd(x[i], real)
            r[i] = u @ v.transpose()
            odd[i] = u @ sigma @ sigma @ sigma @ v.transpose()
            even[i] = v @ sigma @ sigma @ v.transpose()
            s[i] = sigma

    return by_svd


def polar_op(lang, side, kind="f64"):
    real, given = getattr(lang, kind), build_decomposition(lang, side, kind)

    @ts.op("x[n, k, k] -> r[n, k, k], p[n, k, k]", adjoint="source")
    @lang.kernel
    def by_polar(x: given, r: given, p: given):
        for i in x:
            rotation, stretch = lang.polar_decompose(x[i], real)
            r[i] = rotation
            p[i] = stretch

    return by_polar


def rotation(x):
    """Compute the orthogonal factor of matrices by Newton's iteration."""
    for _ in range(60):
        x = (x + torch.linalg.inv(x).mT) / 2
    return x


def proper(x):
    """Compute the rotation U V^T with rotations U and V, as the engines define it in three dims."""
    u, _, vh = torch.linalg.svd(x)
    ones = torch.ones(x.shape[:-1], dtype=x.dtype)
    last = torch.cat([ones[..., :-1], torch.linalg.det(u @ vh)[..., None]], -1)
    return u @ torch.diag_embed(last) @ vh


def values_of(x):
    """Compute singular values: in three dims, the last one with the sign of the determinant."""
    s = torch.linalg.svdvals(x)
    sign = torch.linalg.det(x.detach()).sign()[..., None] if x.shape[-1] == 3 else torch.ones(len(x), 1)
    return torch.diag_embed(torch.cat([s[..., :-1], s[..., -1:] * sign], -1))


def reference_of_svd(x):
    r = proper(x) if x.shape[-1] == 3 else rotation(x)
    return r, x @ x.mT @ x, x.mT @ x, values_of(x)


def reference_of_polar(x):
    r = proper(x) if x.shape[-1] == 3 else rotation(x)
    return r, r.mT @ x


@SIDES
@KINDS
def test_svd(side, kind, lang):
    assert_derivatives_agree(
        svd_op(lang, side, kind), reference_of_svd, separate_singular_values(draw_matrices(side, kind)), kind
    )


@SIDES
@KINDS
def test_polar(side, kind, lang):
    assert_derivatives_agree(
        polar_op(lang, side, kind), reference_of_polar, separate_singular_values(draw_matrices(side, kind)), kind
    )


def test_reflections(lang):
    """Determinants below 0: both of U and V are rotations in three dims, and the last singular value is negative."""
    x = separate_singular_values(draw_matrices(3))
    x = x * -torch.linalg.det(x).sign()[:, None, None]
    assert (torch.linalg.det(x) < 0).all()
    assert_derivatives_agree(svd_op(lang, 3), reference_of_svd, x)
    assert_derivatives_agree(polar_op(lang, 3), reference_of_polar, x)


@SIDES
def test_derivatives_at_a_singular_value_of_zero(side, lang):
    """Derivatives of what is smooth there; the engines' values of a singular value of 0 are so to 1e-10."""
    u, s, vh = torch.linalg.svd(separate_singular_values(draw_matrices(side)))
    s[:, -1] = 0.0
    x = u @ torch.diag_embed(s) @ vh
    weights = [torch.zeros(len(x), side, side, dtype=x.dtype) for _ in range(4)]
    weights[1:3] = [torch.randn_like(x), torch.randn_like(x)]

    def smooth(x):
        return x * 0.0, x @ x.mT @ x, x.mT @ x, x * 0.0

    gradient = pull_back(svd_op(lang, side), x, weights)
    torch.testing.assert_close(gradient, pull_back(smooth, x, weights), rtol=1e-6, atol=1e-6)


@SIDES
def test_values_that_are_nearly_equal(side, lang):
    u, s, vh = torch.linalg.svd(draw_matrices(side))
    x = u @ torch.diag_embed(1.0 + 1e-4 * torch.arange(side, 0, -1, dtype=s.dtype)) @ vh
    x = x * torch.linalg.det(x).sign()[:, None, None] if side == 3 else x  # reflected, a sum of values is nearly 0
    assert_derivatives_agree(polar_op(lang, side), reference_of_polar, x, rtol=1e-7, atol=1e-7)
    # In two dims the engines take what is off by 1e-5 for diagonal: single columns and values are off by a tenth here.
    weights = [*(torch.randn_like(x) for _ in range(3)), torch.eye(side, dtype=x.dtype).expand_as(x)]
    gradient = pull_back(svd_op(lang, side), x, weights)
    torch.testing.assert_close(gradient, pull_back(reference_of_svd, x, weights), rtol=1e-4, atol=1e-3)


def scaled_rotations(side):
    x = rotation(draw_matrices(side))
    x = x * torch.linalg.det(x)[:, None, None].sign() if side == 3 else x[torch.linalg.det(x) > 0]
    return torch.cat([torch.eye(side)[None], 2.5 * torch.eye(side)[None], x, 0.3 * x])


@SIDES
@KINDS
def test_polar_where_all_values_are_equal(side, kind, lang):
    """At the identity a simulation starts; torch's own derivative by `linalg.svd` is not a number there."""
    x = scaled_rotations(side)
    weights = [torch.randn_like(x), torch.randn_like(x)]
    by_newton = pull_back(lambda x: (rotation(x), rotation(x).mT @ x), x, weights)
    limits = TOLERANCE[kind]
    gradient = pull_back(polar_op(lang, side, kind), x.to(DTYPE[kind]), weights)
    torch.testing.assert_close(gradient.double(), by_newton, **limits)
    moved = torch.randn_like(x)
    op = polar_op(lang, side, kind)
    _, tangent = torch.func.jvp(lambda x: op(x).r, (x.to(DTYPE[kind]),), (moved.to(DTYPE[kind]),))
    torch.testing.assert_close(tangent.double(), torch.func.jvp(rotation, (x,), (moved,))[1], **limits)


@SIDES
@KINDS
def test_derivatives_where_all_singular_values_are_equal(side, kind, lang):
    """`U V^T` and functions of singular values alone have their derivative; torch gives NaN."""
    x = torch.eye(side, dtype=torch.float64).expand(3, side, side) * torch.tensor([1.0, 0.5, 3.0])[:, None, None]
    weights = [torch.randn(3, side, side, dtype=x.dtype), x * 0.0, x * 0.0, torch.eye(side, dtype=x.dtype).expand_as(x)]
    gradient = pull_back(svd_op(lang, side, kind), x.to(DTYPE[kind]), weights)
    by_newton = pull_back(lambda x: (rotation(x),), x, weights[:1])
    wanted = by_newton + torch.eye(side, dtype=x.dtype)  # of the sum of singular values
    torch.testing.assert_close(gradient.double(), wanted, **TOLERANCE[kind])
    u, _, vh = torch.linalg.svd(x.clone().requires_grad_())
    leaf = x.clone().requires_grad_()
    u, _, vh = torch.linalg.svd(leaf)
    assert not torch.autograd.grad((u @ vh).sum(), leaf)[0].isfinite().all()


@SIDES
def test_undefined_derivatives_are_finite(side, lang):
    """Of 0 and of rank 1 no rotation is the only one: what is not determined has no derivative, and is not NaN."""
    x = torch.zeros(2, side, side, dtype=torch.float64)
    x[1, 0, 0] = 1.0
    for op, count in ((svd_op(lang, side), 4), (polar_op(lang, side), 2)):
        assert pull_back(op, x, [torch.ones_like(x)] * count).isfinite().all()


@pytest.mark.costly
@SIDES
def test_second_derivatives(side, lang):
    x = separate_singular_values(draw_matrices(side, count=2)).requires_grad_()
    by_svd, by_polar = svd_op(lang, side), polar_op(lang, side)
    weight = torch.randn(2, side, side, dtype=x.dtype)

    def energy(x):
        return ((x - by_polar(x).r) ** 2 * weight).sum() + (by_svd(x).odd * weight).sum()

    def reference(x):
        return ((x - reference_of_polar(x)[0]) ** 2 * weight).sum() + (x @ x.mT @ x * weight).sum()

    actual, wanted = (torch.autograd.functional.hessian(one, x.detach()) for one in (energy, reference))
    torch.testing.assert_close(actual, wanted, rtol=1e-6, atol=1e-6)


@SIDES
def test_batches(side, lang):
    x = separate_singular_values(draw_matrices(side, count=6)).reshape(2, 3, side, side)
    op, weight = polar_op(lang, side), torch.randn(side, side, dtype=x.dtype)
    gradients = torch.func.vmap(torch.func.grad(lambda x: (op(x).r * weight).sum()))(x)
    wanted = pull_back(lambda x: (reference_of_polar(x)[0],), x.reshape(6, side, side), [weight.expand(6, side, side)])
    torch.testing.assert_close(gradients, wanted.reshape(gradients.shape), rtol=1e-7, atol=1e-7)


@SIDES
def test_the_oracle_agrees(side, lang):
    """Also where values are equal, by formulas of its own."""
    x = torch.cat([torch.eye(side, dtype=torch.float64)[None], separate_singular_values(draw_matrices(side, count=2))])
    for op, count in ((svd_op(lang, side), 4), (polar_op(lang, side), 2)):
        weights = [torch.randn(3, side, side, dtype=torch.float64) for _ in range(count)]
        answer = ts.oracle(op, x, cotangents=weights)
        for actual, wanted in zip(op(x), answer.outputs.values(), strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(pull_back(op, x, weights), answer.gradients["x"], rtol=1e-7, atol=1e-7)


@SIDES
def test_check(side, lang):
    report = ts.check(polar_op(lang, side), separate_singular_values(draw_matrices(side, count=2)))
    assert report.ok, str(report)


def test_loops_and_branches(lang):
    """A matrix that loops hand on is decomposed in each of them; the reverse needs it once more."""
    given = build_decomposition(lang, 3, "f64")

    @ts.op("x[n, 3, 3], a[n, 3, 3] -> y[n, 3, 3]", adjoint="source")
    @lang.kernel
    def carried(x: given, a: given, y: given, steps: int):
        for i in x:
            f = x[i]
            for k in range(steps):
                if k % 2 == 0:
                    u, _, v = lang.svd(f, lang.f64)
                    f = 0.5 * (f + u @ v.transpose()) @ a[i]
                else:
                    r, p = lang.polar_decompose(f + a[i], lang.f64)
                    f = r + 0.5 * p
            y[i] = f

    def reference(x, a):
        for k in range(3):
            x = 0.5 * (x + proper(x)) @ a if k % 2 == 0 else proper(x + a) + 0.5 * proper(x + a).mT @ (x + a)
        return x

    x, a = (separate_singular_values(draw_matrices(3, count=4)).requires_grad_() for _ in range(2))
    weight = torch.randn_like(x)
    gradients = torch.autograd.grad(carried(x, a, 3), (x, a), weight)
    for one, other in zip(gradients, torch.autograd.grad(reference(x, a), (x, a), weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_printed_source(lang):
    """An adjoint has the engine's own call in it."""
    op = polar_op(lang, 3)
    op(draw_matrices(3).requires_grad_())[0].sum().backward()
    assert ".polar_decompose(" in op.explain("all")


@pytest.mark.compiled_engine
def test_unsupported_decompositions_are_refused(lang):
    given = lang.types.ndarray(dtype=lang.types.matrix(2, 3, lang.f64), ndim=1)

    @ts.op("x[n, 2, 3] -> y[n]", adjoint="source")
    @lang.kernel
    def oblong(x: given, y: lang.types.ndarray()):
        for i in x:
            _, p = lang.polar_decompose(x[i], lang.f64)
            y[i] = p[0, 0]

    with pytest.raises(ts.KernelError, match=r"(?s)`oblong` does not compile.*polar_decompose\(x\[i\], lang.f64\)"):
        oblong(torch.randn(2, 2, 3, dtype=torch.float64).requires_grad_()).sum().backward()


@pytest.mark.compiled_engine
@SIDES
def test_diagonal_matrices(side, lang):
    """Where the engines' own source takes a branch without derivatives."""
    x = torch.diag_embed(torch.tensor([[2.0, 1.0, 0.5], [3.0, 1.5, 1.0]], dtype=torch.float64)[:, :side])
    assert_derivatives_agree(svd_op(lang, side), reference_of_svd, x)


@SIDES
def test_matrix_functions_where_values_are_equal(side, lang):
    """What conventions.md says: entries between equal values are missing, and come back where values differ."""
    op = svd_op(lang, side)
    equal = torch.eye(side, dtype=torch.float64)[None]
    differing = torch.diag_embed(torch.tensor([1.0, 1.0 + 1e-4, 1.0 - 1e-4], dtype=torch.float64)[:side])[None]
    weight = torch.randn_like(equal)
    weights = [equal * 0.0, weight, equal * 0.0, equal * 0.0]
    skew, even = (weight - weight.mT) / 2, (weight + weight.mT) / 2
    diagonal = torch.diag_embed(weight.diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(pull_back(op, equal, weights), skew + 3.0 * diagonal)
    torch.testing.assert_close(pull_back(op, differing, weights), skew + 3.0 * even, rtol=1e-3, atol=1e-3)
