"""Methods of vectors and matrices called on the class: `ti.Vector.normalized(v, eps)` is `v.normalized(eps)`."""

import pytest
import torch

import cases
import tinsmith as ts

N = 5


def lengths(lang, vectors, numbers):
    @lang.kernel
    def lengths(x: vectors, y: numbers):
        for i in x:
            u = lang.Vector.normalized(x[i], 1e-3)
            y[i] = u[0] * u[1] + lang.Vector.norm(x[i]) + lang.Matrix.norm_sqr(x[i])

    return lengths


def products(lang, vectors, numbers):
    @lang.kernel
    def products(x: vectors, y: numbers):
        for i in x:
            m = lang.Matrix.outer_product(x[i], lang.Vector([1.0, 2.0, x[i][0]]))
            y[i] = lang.Matrix.trace(lang.Matrix.transpose(m)) + lang.Vector.dot(x[i], x[i]) * lang.Vector.sum(x[i])

    return products


TWINS = {
    lengths: lambda x: (x / (x.norm(dim=1, keepdim=True) + 1e-3))[:, :2].prod(1) + x.norm(dim=1) + x.square().sum(1),
    products: lambda x: x[:, 0] + 2 * x[:, 1] + x[:, 2] * x[:, 0] + x.square().sum(1) * x.sum(1),
}


@pytest.mark.parametrize("make", [lengths, products])
def test_values_and_gradients(lang64, make):
    vectors = lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=1)
    kernel = make(lang64, vectors, lang64.types.ndarray(dtype=lang64.f64, ndim=1))
    op = ts.op("x[n, 3] -> y[n]", adjoint="source")(kernel)
    x, seeds = torch.randn(N, 3, dtype=torch.float64).requires_grad_(), torch.randn(N, dtype=torch.float64)
    ours, theirs = op(x), TWINS[make](x)
    cases.assert_close(ours, theirs)
    wanted = torch.autograd.grad(theirs, x, seeds)
    cases.assert_close(torch.autograd.grad(ours, x, seeds), wanted)
    answer = ts.oracle(op, x.detach(), cotangents=seeds)
    cases.assert_close(answer.gradients["x"], wanted[0])
    forward = (torch.func.jvp(one, (x.detach(),), (torch.ones_like(x),))[1] for one in (op, TWINS[make]))
    cases.assert_close(*forward)
