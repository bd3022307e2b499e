"""TS303 says of norms of zero vectors what a generated gradient makes of them."""

import math

import pytest
import torch

import tinsmith as ts


def build_norm(lang):
    @lang.kernel
    def norm(x: lang.types.ndarray(dtype=lang.types.vector(3, lang.f64), ndim=1), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i].norm()

    return norm


def build_normalized(lang):
    @lang.kernel
    def normalized(x: lang.types.ndarray(dtype=lang.types.vector(3, lang.f64), ndim=1), y: lang.types.ndarray()):
        for i in y:
            v = x[i].normalized()
            y[i] = v[0]

    return normalized


@pytest.mark.parametrize(
    ("build", "message", "is_finite"),
    [(build_norm, "a generated one 0", True), (build_normalized, "is NaN, and its gradient is not finite", False)],
)
def test_the_finding_tells_what_the_generated_gradient_is(build, message, is_finite, lang64):
    op = ts.op("x[n, 3] -> y[n]")(build(lang64))
    (finding,) = [one for one in ts.lint(op) if one.rule == "TS303"]
    assert message in finding.message
    assert bool(finding.engines) == is_finite
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    y = op(x)
    y.sum().backward()
    assert x.grad is not None
    assert all(map(math.isfinite, [*y.tolist(), *x.grad.flatten().tolist()])) == is_finite


def build_guarded(lang, name):  # noqa: C901  # five kernels
    """Return a kernel with a norm in, or before, a branch on the length of the vector."""
    vectors = lang.types.ndarray(dtype=lang.types.vector(3, lang.f64), ndim=1)

    @lang.kernel
    def by_norm(x: vectors, y: lang.types.ndarray()):
        for i in y:
            v = x[i]
            if v.norm() > 1e-6:
                y[i] = v.norm()

    @lang.kernel
    def by_square(x: vectors, y: lang.types.ndarray()):
        for i in y:
            if x[i].norm_sqr() > 1e-6:
                y[i] = x[i].normalized()[0]

    @lang.kernel
    def other_branch(x: vectors, y: lang.types.ndarray()):
        for i in y:
            v = x[i]
            square = v.dot(v)
            if square <= 1e-6:
                y[i] = 0.0
            else:
                y[i] = v.normalized()[0] + v.norm()

    @lang.kernel
    def before_the_branch(x: vectors, y: lang.types.ndarray()):
        for i in y:
            v = x[i]
            length = v.norm()
            if length > 1e-6:
                y[i] = length

    @lang.kernel
    def another_vector(x: vectors, y: lang.types.ndarray()):
        for i in y:
            if y.shape[0] > 1:
                v = x[i]
                y[i] = v.norm()

    return {one.__name__: one for one in (by_norm, by_square, other_branch, before_the_branch, another_vector)}[name]


@pytest.mark.parametrize("name", ["by_norm", "by_square", "other_branch", "before_the_branch", "another_vector"])
def test_a_branch_on_the_length_keeps_zeros_away(name, lang64):
    """There is a finding where the engine's own gradient is not finite, and nowhere else."""
    op = ts.op("x[n, 3] -> y[n]", adjoint="engine")(build_guarded(lang64, name))
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    op(x).sum().backward()
    assert x.grad is not None
    has_finding = any(one.rule == "TS303" for one in ts.lint(op))
    assert has_finding != bool(x.grad.isfinite().all())
