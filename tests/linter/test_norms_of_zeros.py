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
