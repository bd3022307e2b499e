"""`svd`, `polar_decompose` and `sym_eig` in kernels: derivatives against matrix functions that need none of them.

With A = U S V^T, `U S^3 V^T` is `A A^T A`, and `Q W^3 Q^T` is `A^3`: whatever the order and the signs, and where values
are equal, reflected or 0. Rotations are compared with Newton's iteration for the polar decomposition.
"""

import pytest
import torch

import tinsmith as ts

SIDES = pytest.mark.parametrize("side", [2, 3])
KINDS = pytest.mark.parametrize("kind", ["f32", "f64"])
TOLERANCE = {"f32": {"rtol": 2e-3, "atol": 2e-3}, "f64": {"rtol": 1e-7, "atol": 1e-7}}
DTYPE = {"f32": torch.float32, "f64": torch.float64}


def matrices(lang, side, kind):
    return lang.types.ndarray(dtype=lang.types.matrix(side, side, getattr(lang, kind)), ndim=1)


def svd_op(lang, side, kind="f64"):
    real, given = getattr(lang, kind), matrices(lang, side, kind)

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
    real, given = getattr(lang, kind), matrices(lang, side, kind)

    @ts.op("x[n, k, k] -> r[n, k, k], p[n, k, k]", adjoint="source")
    @lang.kernel
    def by_polar(x: given, r: given, p: given):
        for i in x:
            rotation, stretch = lang.polar_decompose(x[i], real)
            r[i] = rotation
            p[i] = stretch

    return by_polar


def eigen_op(lang, side, kind="f64"):
    real, given = getattr(lang, kind), matrices(lang, side, kind)
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


def rotation(x):
    """The orthogonal factor of matrices, by Newton's iteration."""
    for _ in range(60):
        x = (x + torch.linalg.inv(x).mT) / 2
    return x


def proper(x):
    """The rotation U V^T of rotations U and V, as the engines have it in three dims."""
    u, _, vh = torch.linalg.svd(x)
    ones = torch.ones(x.shape[:-1], dtype=x.dtype)
    last = torch.cat([ones[..., :-1], torch.linalg.det(u @ vh)[..., None]], -1)
    return u @ torch.diag_embed(last) @ vh


def values_of(x):
    """Singular values: in three dims, the last one with the sign of the determinant."""
    s = torch.linalg.svdvals(x)
    sign = torch.linalg.det(x.detach()).sign()[..., None] if x.shape[-1] == 3 else torch.ones(len(x), 1)
    return torch.diag_embed(torch.cat([s[..., :-1], s[..., -1:] * sign], -1))


def random(side, kind="f64", count=8):
    return torch.randn(count, side, side, dtype=torch.float64).to(DTYPE[kind])


def reference_of_svd(x):
    r = proper(x) if x.shape[-1] == 3 else rotation(x)
    return r, x @ x.mT @ x, x.mT @ x, values_of(x)


def reference_of_polar(x):
    r = proper(x) if x.shape[-1] == 3 else rotation(x)
    return r, r.mT @ x


def reference_of_eigen(x):
    x = (x + x.mT) / 2
    return torch.linalg.eigvalsh(x), x @ x @ x


def pulled(function, x, weights):
    x = x.detach().clone().requires_grad_()
    outputs = function(x)
    return torch.autograd.grad(outputs, x, [w.to(o.dtype) for w, o in zip(weights, outputs, strict=True)])[0]


def compared(op, reference, x, kind="f64", **tolerance):
    """Values, gradients and tangents of an op against those of a function of torch, in float64."""
    wide, limits = x.double(), tolerance or TOLERANCE[kind]
    expected = reference(wide)
    for found, wanted in zip(op(x), expected, strict=True):
        torch.testing.assert_close(found.double(), wanted, **limits)
    weights = [torch.randn_like(one) for one in expected]
    for k in range(len(weights)):  # one output after the other: what is not asked for has no part
        only = [weight * (k == j) for j, weight in enumerate(weights)]
        torch.testing.assert_close(pulled(op, x, only).double(), pulled(reference, wide, only), **limits)
    moved = torch.randn_like(wide)
    moved = (moved + moved.mT) / 2 if reference is reference_of_eigen else moved
    _, found = torch.func.jvp(lambda x: tuple(op(x)), (x,), (moved.to(x.dtype),))
    _, wanted = torch.func.jvp(reference, (wide,), (moved,))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, **limits)


def apart(x):
    """Matrices whose singular values differ by a tenth at least, so that float32 can tell."""
    u, s, vh = torch.linalg.svd(x.double())
    return (u @ torch.diag_embed(s + torch.arange(x.shape[-1], 0, -1) * 0.3) @ vh).to(x.dtype)


@SIDES
@KINDS
def test_svd(side, kind, lang):
    compared(svd_op(lang, side, kind), reference_of_svd, apart(random(side, kind)), kind)


@SIDES
@KINDS
def test_polar(side, kind, lang):
    compared(polar_op(lang, side, kind), reference_of_polar, apart(random(side, kind)), kind)


def symmetric(side, kind):
    x = random(side, kind)
    q = torch.linalg.qr(x.double()).Q
    w = torch.arange(side) + torch.rand(len(x), side, dtype=torch.float64) / 2
    return (q @ torch.diag_embed(w) @ q.mT).to(x.dtype)


@SIDES
@KINDS
def test_sym_eig(side, kind, lang, engine):
    is_down = engine == "taichi" and side == 2
    x = symmetric(side, kind)
    x = (x + x.mT) / 2

    def reference(x):
        values, cube = reference_of_eigen(x)
        return (values.flip(-1) if is_down else values), cube

    op = eigen_op(lang, side, kind)
    # Taichi solves the cubic equation: its eigenvalues of float64 are right to float32 only.
    is_rough = engine == "taichi" and side == 3 and kind == "f64"
    wide, limits = x.double(), {"rtol": 1e-4, "atol": 1e-4} if is_rough else TOLERANCE[kind]
    for found, wanted in zip(op(x), reference(wide), strict=True):
        torch.testing.assert_close(found.double(), wanted, **limits)
    weights = [torch.randn_like(one) for one in reference(wide)]
    torch.testing.assert_close(pulled(op, x, weights).double(), pulled(reference, wide, weights), **limits)
    moved = torch.randn_like(wide)
    moved = (moved + moved.mT) / 2
    _, found = torch.func.jvp(lambda x: tuple(op(x)), (x,), (moved.to(x.dtype),))
    for one, other in zip(found, torch.func.jvp(reference, (wide,), (moved,))[1], strict=True):
        torch.testing.assert_close(one.double(), other, **limits)


def test_reflections(lang):
    """Determinants below 0: both of U and V are rotations in three dims, and the last singular value is negative."""
    x = apart(random(3))
    x = x * -torch.linalg.det(x).sign()[:, None, None]
    assert (torch.linalg.det(x) < 0).all()
    compared(svd_op(lang, 3), reference_of_svd, x)
    compared(polar_op(lang, 3), reference_of_polar, x)


@SIDES
def test_one_value_is_zero(side, lang):
    """Derivatives of what is smooth there; the engines' values of a singular value of 0 are so to 1e-10."""
    u, s, vh = torch.linalg.svd(apart(random(side)))
    s[:, -1] = 0.0
    x = u @ torch.diag_embed(s) @ vh
    weights = [torch.zeros(len(x), side, side, dtype=x.dtype) for _ in range(4)]
    weights[1:3] = [torch.randn_like(x), torch.randn_like(x)]

    def smooth(x):
        return x * 0.0, x @ x.mT @ x, x.mT @ x, x * 0.0

    found = pulled(svd_op(lang, side), x, weights)
    torch.testing.assert_close(found, pulled(smooth, x, weights), rtol=1e-6, atol=1e-6)


@SIDES
def test_values_that_are_nearly_equal(side, lang):
    u, s, vh = torch.linalg.svd(random(side))
    x = u @ torch.diag_embed(1.0 + 1e-4 * torch.arange(side, 0, -1, dtype=s.dtype)) @ vh
    x = x * torch.linalg.det(x).sign()[:, None, None] if side == 3 else x  # reflected, a sum of values is nearly 0
    compared(polar_op(lang, side), reference_of_polar, x, rtol=1e-7, atol=1e-7)
    # In two dims the engines take what is off by 1e-5 for diagonal: single columns and values are off by a tenth here.
    weights = [*(torch.randn_like(x) for _ in range(3)), torch.eye(side, dtype=x.dtype).expand_as(x)]
    found = pulled(svd_op(lang, side), x, weights)
    torch.testing.assert_close(found, pulled(reference_of_svd, x, weights), rtol=1e-4, atol=1e-3)


def scaled_rotations(side):
    x = rotation(random(side))
    x = x * torch.linalg.det(x)[:, None, None].sign() if side == 3 else x[torch.linalg.det(x) > 0]
    return torch.cat([torch.eye(side)[None], 2.5 * torch.eye(side)[None], x, 0.3 * x])


@SIDES
@KINDS
def test_polar_where_all_values_are_equal(side, kind, lang):
    """At the identity a simulation starts; torch's own derivative by `linalg.svd` is not a number there."""
    x = scaled_rotations(side)
    weights = [torch.randn_like(x), torch.randn_like(x)]
    by_newton = pulled(lambda x: (rotation(x), rotation(x).mT @ x), x, weights)
    limits = TOLERANCE[kind]
    found = pulled(polar_op(lang, side, kind), x.to(DTYPE[kind]), weights)
    torch.testing.assert_close(found.double(), by_newton, **limits)
    moved = torch.randn_like(x)
    op = polar_op(lang, side, kind)
    _, tangent = torch.func.jvp(lambda x: op(x).r, (x.to(DTYPE[kind]),), (moved.to(DTYPE[kind]),))
    torch.testing.assert_close(tangent.double(), torch.func.jvp(rotation, (x,), (moved,))[1], **limits)


@SIDES
@KINDS
def test_u_v_where_all_values_are_equal(side, kind, lang):
    """`U V^T` and functions of singular values alone have their derivative; torch gives NaN."""
    x = torch.eye(side, dtype=torch.float64).expand(3, side, side) * torch.tensor([1.0, 0.5, 3.0])[:, None, None]
    weights = [torch.randn(3, side, side, dtype=x.dtype), x * 0.0, x * 0.0, torch.eye(side, dtype=x.dtype).expand_as(x)]
    found = pulled(svd_op(lang, side, kind), x.to(DTYPE[kind]), weights)
    by_newton = pulled(lambda x: (rotation(x),), x, weights[:1])
    wanted = by_newton + torch.eye(side, dtype=x.dtype)  # of the sum of singular values
    torch.testing.assert_close(found.double(), wanted, **TOLERANCE[kind])
    u, _, vh = torch.linalg.svd(x.clone().requires_grad_())
    leaf = x.clone().requires_grad_()
    u, _, vh = torch.linalg.svd(leaf)
    assert not torch.autograd.grad((u @ vh).sum(), leaf)[0].isfinite().all()


@SIDES
def test_no_derivative_is_finite_where_there_is_none(side, lang):
    """Of 0 and of rank 1 no rotation is the only one: what is not determined has no derivative, and is not NaN."""
    x = torch.zeros(2, side, side, dtype=torch.float64)
    x[1, 0, 0] = 1.0
    for op, count in ((svd_op(lang, side), 4), (polar_op(lang, side), 2)):
        assert pulled(op, x, [torch.ones_like(x)] * count).isfinite().all()


@SIDES
def test_second_derivatives(side, lang):
    x = apart(random(side, count=2)).requires_grad_()
    by_svd, by_polar = svd_op(lang, side), polar_op(lang, side)
    weight = torch.randn(2, side, side, dtype=x.dtype)

    def energy(x):
        return ((x - by_polar(x).r) ** 2 * weight).sum() + (by_svd(x).odd * weight).sum()

    def reference(x):
        return ((x - reference_of_polar(x)[0]) ** 2 * weight).sum() + (x @ x.mT @ x * weight).sum()

    found, wanted = (torch.autograd.functional.hessian(one, x.detach()) for one in (energy, reference))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@SIDES
def test_batches(side, lang):
    x = apart(random(side, count=6)).reshape(2, 3, side, side)
    op, weight = polar_op(lang, side), torch.randn(side, side, dtype=x.dtype)
    found = torch.func.vmap(torch.func.grad(lambda x: (op(x).r * weight).sum()))(x)
    wanted = pulled(lambda x: (reference_of_polar(x)[0],), x.reshape(6, side, side), [weight.expand(6, side, side)])
    torch.testing.assert_close(found, wanted.reshape(found.shape), rtol=1e-7, atol=1e-7)


@SIDES
def test_the_oracle_agrees(side, lang):
    """Also where values are equal, by formulas of its own."""
    x = torch.cat([torch.eye(side, dtype=torch.float64)[None], apart(random(side, count=2))])
    for op, count in ((svd_op(lang, side), 4), (polar_op(lang, side), 2)):
        weights = [torch.randn(3, side, side, dtype=torch.float64) for _ in range(count)]
        answer = ts.oracle(op, x, cotangents=weights)
        for found, wanted in zip(op(x), answer.outputs.values(), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(pulled(op, x, weights), answer.gradients["x"], rtol=1e-7, atol=1e-7)


@SIDES
def test_check(side, lang):
    report = ts.check(polar_op(lang, side), apart(random(side, count=2)))
    assert report.ok, str(report)


def test_loops_and_branches(lang):
    """A matrix that loops hand on is decomposed in each of them; the reverse needs it once more."""
    given = matrices(lang, 3, "f64")

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

    x, a = (apart(random(3, count=4)).requires_grad_() for _ in range(2))
    weight = torch.randn_like(x)
    found = torch.autograd.grad(carried(x, a, 3), (x, a), weight)
    for one, other in zip(found, torch.autograd.grad(reference(x, a), (x, a), weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_printed_source(lang):
    """An adjoint has the engine's own call in it."""
    op = polar_op(lang, 3)
    op(random(3).requires_grad_())[0].sum().backward()
    assert ".polar_decompose(" in op.explain()


def test_what_is_refused(lang):
    given = lang.types.ndarray(dtype=lang.types.matrix(2, 3, lang.f64), ndim=1)

    @ts.op("x[n, 2, 3] -> y[n]", adjoint="source")
    @lang.kernel
    def oblong(x: given, y: lang.types.ndarray()):
        for i in x:
            _, p = lang.polar_decompose(x[i], lang.f64)
            y[i] = p[0, 0]

    with pytest.raises(ts.TinsmithError, match=r"`polar_decompose` of a matrix of shape \(2, 3\)"):
        oblong(torch.randn(2, 2, 3, dtype=torch.float64).requires_grad_()).sum().backward()


def test_more_rows(lang, engine):
    """Quadrants has symmetric matrices of up to six rows."""
    if engine != "quadrants":
        pytest.skip("Taichi has three rows at most")
    x = symmetric(5, "f64")[:2]
    compared(eigen_op(lang, 5), reference_of_eigen, (x + x.mT) / 2)


@SIDES
def test_make_spd(side, lang, engine):
    """Also where eigenvalues are equal: of a positive definite matrix it is the identity."""
    if engine != "quadrants":
        pytest.skip("Taichi has none")
    real, given = lang.f64, matrices(lang, side, "f64")

    @ts.op("x[n, k, k] -> y[n, k, k]", adjoint="source")
    @lang.kernel
    def projected(x: given, y: given):
        for i in x:
            y[i] = lang.make_spd(x[i], real)

    def reference(x):
        w, q = torch.linalg.eigh((x + x.mT) / 2)
        return (q @ torch.diag_embed(w.clamp_min(0)) @ q.mT,)

    op, x = (lambda x: (projected(x),)), random(side)
    x = x + x.mT
    weight = [torch.randn_like(x)]
    torch.testing.assert_close(pulled(op, x, weight), pulled(reference, x, weight))
    moved = torch.randn_like(x)
    moved = moved + moved.mT
    tangents = [torch.func.jvp(one, (x,), (moved,))[1][0] for one in (op, reference)]
    torch.testing.assert_close(*tangents)
    eyes = torch.eye(side, dtype=x.dtype).expand_as(x) * torch.arange(-3, 5)[:, None, None]
    wanted = (weight[0] + weight[0].mT) / 2 * (torch.arange(-3, 5) > 0)[:, None, None]
    torch.testing.assert_close(pulled(op, eyes, weight), wanted)
    for given_ in (x, eyes):
        answer = ts.oracle(projected, given_, cotangents=weight[0])
        torch.testing.assert_close(pulled(op, given_, weight), answer.gradients["x"])


@SIDES
def test_solve_inverse_and_determinant(side, lang):
    """What engines write in their own language has derivatives too, from that source."""
    real, given = lang.f64, matrices(lang, side, "f64")
    vectors = lang.types.ndarray(dtype=lang.types.vector(side, real), ndim=1)

    @ts.op("x[n, k, k], b[n, k] -> y[n, k], z[n, k, k], d[n]", adjoint="source")
    @lang.kernel
    def solved(x: given, b: vectors, y: vectors, z: given, d: lang.types.ndarray()):
        for i in x:
            y[i] = lang.solve(x[i], b[i], real)
            z[i] = x[i].inverse()
            d[i] = x[i].determinant()

    x, b = random(side), torch.randn(8, side, dtype=torch.float64)
    compared(lambda x: solved(x, b), lambda x: (torch.linalg.solve(x, b), torch.linalg.inv(x), torch.linalg.det(x)), x)


@pytest.mark.parametrize("is_real", [True, False], ids=["real", "complex"])
def test_eig(is_real, lang):
    real, given = lang.f64, matrices(lang, 2, "f64")

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

    x = random(2, count=64)
    gap = (x[:, 0, 0] - x[:, 1, 1]) ** 2 + 4 * x[:, 0, 1] * x[:, 1, 0]
    compared(lambda x: (values_of(x),), reference, x[gap > 0.1 if is_real else gap < -0.1])


@SIDES
def test_diagonal_matrices(side, lang):
    """Where the engines' own source takes a branch without derivatives."""
    x = torch.diag_embed(torch.tensor([[2.0, 1.0, 0.5], [3.0, 1.5, 1.0]], dtype=torch.float64)[:, :side])
    compared(svd_op(lang, side), reference_of_svd, x)


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
    torch.testing.assert_close(pulled(op, equal, weights), skew + 3.0 * diagonal)
    torch.testing.assert_close(pulled(op, differing, weights), skew + 3.0 * even, rtol=1e-3, atol=1e-3)
