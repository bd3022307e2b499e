"""Branches that are decided when a kernel is compiled, without `ti.static`."""

import pytest
import torch

import tinsmith as ts

COUNT = 3


@pytest.mark.parametrize("form", ["never", "always", "ternary", "left"])
def test_values_and_gradients(lang64, form):
    """Taichi's optimizer cannot take apart every nest with an `if False:` in it."""

    @ts.op("x[n], w[n, m], p[n, 2] -> z[n], v[n, 2]", adjoint="source")
    @lang64.kernel
    def kernel(
        x: lang64.types.ndarray(ndim=1),
        w: lang64.types.ndarray(ndim=2),
        p: lang64.types.ndarray(dtype=lang64.math.vec2, ndim=1),
        z: lang64.types.ndarray(ndim=1),
        v: lang64.types.ndarray(dtype=lang64.math.vec2, ndim=1),
    ):
        for i in x:
            s = p[i][0]
            for j in range(1, w.shape[1]):
                if p[i][1] > 0.7:
                    continue
                if x[i] < 0.3:
                    s = s * w[i, j]
                elif lang64.static(form == "never"):
                    pass
                elif COUNT == 0:
                    v[0] += p[0]
                elif COUNT == 3:
                    v[i] += p[i] * (w[i, j] if COUNT == 3 else p[1000][0])
                    if lang64.static(form == "left"):
                        if COUNT == 3:
                            break
            z[i] = s

    generator = torch.Generator().manual_seed(3)
    x, w, p = (
        torch.rand(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in [(6,), (6, 4), (6, 2)]
    )
    c = {"z": torch.rand(6, dtype=torch.float64), "v": torch.rand(6, 2, dtype=torch.float64)}
    outputs = kernel(x, w, p)
    answer = ts.oracle(kernel, x, w, p, cotangents=c)
    torch.testing.assert_close(outputs.v.detach(), answer.outputs["v"])
    gradients = torch.autograd.grad(list(outputs), (x, w, p), list(c.values()))
    for name, one in zip("xwp", gradients, strict=True):
        torch.testing.assert_close(one, answer.gradients[name])


def test_a_nest_that_taichi_does_not_compile_with_a_false_branch(lang64):
    @ts.op("x[n], p[n, 2], t[] -> z[n], v[n, 2]", adjoint="source")
    @lang64.kernel
    def kernel(
        x: lang64.types.ndarray(ndim=1),
        p: lang64.types.ndarray(dtype=lang64.math.vec2, ndim=1),
        t: lang64.types.ndarray(ndim=0),
        z: lang64.types.ndarray(ndim=1),
        v: lang64.types.ndarray(dtype=lang64.math.vec2, ndim=1),
    ):
        for i in x:
            for _ in range(1, x.shape[0]):
                if p[i][1] > 0.7:
                    continue
                if t[None] < 0.3:
                    z[i] += 0.0
                elif COUNT == 0:
                    v[x.shape[0] - 1] += p[x.shape[0] - 1]
            z[i] += x[x.shape[0] - 1]

    x, p = torch.rand(5, dtype=torch.float64).requires_grad_(), torch.rand(5, 2, dtype=torch.float64).requires_grad_()
    t = torch.tensor(0.1, dtype=torch.float64)
    gradients = torch.autograd.grad([one.sum() for one in kernel(x, p, t)], (x, p), allow_unused=True)
    assert gradients[0].tolist() == [0.0, 0.0, 0.0, 0.0, 5.0]
