"""TS303 says of norms of zero vectors what a generated gradient makes of them."""

import math

import pytest
import torch

import tinsmith as ts
from support.written import compile_text


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


GUARDS = {
    "not": "not v.norm() < 1e-6",
    "chain": "0.0 < v.norm() < 3.0",
    "both": "v[0] == 0.0 and (v.norm_sqr() > 1e-6) & (v[1] > -1.0)",
    "either": "v.norm() > 1e-6 or v[0] == 0.0",
    "near": "v.norm() < 1.0",
    "near_by_square": "1.0 >= v.norm_sqr()",
}
"""Conditions of a branch that divides by the norm; those of the last three are met by zeros."""
KERNELS = ("by_norm", "by_square", "other_branch", "near_branch", "before_the_branch", "another_vector")


def build_guarded(lang, name):  # noqa: C901  # six kernels
    """Return a kernel with a norm in, or before, a branch on the length of the vector."""
    if name in GUARDS:
        lines = ["for i in y:", "    v = x[i]", f"    if {GUARDS[name]}:", "        y[i] = v.normalized()[0]"]
        array = "lang.types.ndarray(dtype=lang.types.vector(3, lang.f64), ndim=1)"
        head = f"def kernel(x: {array}, y: lang.types.ndarray()):"
        return compile_text(lang, "\n".join([head, *(f"    {line}" for line in lines)]) + "\n")
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
    def near_branch(x: vectors, y: lang.types.ndarray()):
        for i in y:
            v = x[i]
            if v[0] > 2.0:
                y[i] = 0.0
            elif v.norm_sqr() > 1e-6:
                y[i] = 1.0
            else:
                y[i] = v.normalized()[0]

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

    kernels = (by_norm, by_square, other_branch, near_branch, before_the_branch, another_vector)
    return dict(zip(KERNELS, kernels, strict=True))[name]


@pytest.mark.parametrize("name", [*KERNELS, *GUARDS])
def test_a_branch_on_the_length_keeps_zeros_away(name, lang64):
    """There is a finding where the engine's own gradient is not finite, and nowhere else.

    It names no engine where a generated gradient is not finite either.
    """
    kernel = build_guarded(lang64, name)
    is_finite = {}
    for adjoint in ("engine", "source"):
        op = ts.op("x[n, 3] -> y[n]", adjoint=adjoint)(kernel)
        x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
        op(x).sum().backward()
        assert x.grad is not None
        is_finite[adjoint] = bool(x.grad.isfinite().all())
    findings = [one for one in ts.lint(op) if one.rule == "TS303"]
    assert bool(findings) != is_finite["engine"]
    assert any(not one.engines for one in findings) != is_finite["source"]
