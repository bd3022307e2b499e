"""Elements that a loop stores to again and again: the last store gets the adjoint."""

import pytest
import torch

import tinsmith as ts


@pytest.mark.parametrize("form", ["for", "while", "nested"])
def test_the_last_store_gets_the_adjoint(lang64, form):
    @ts.op("x[n], k[m]: i32 -> y[n]", adjoint="source")
    @lang64.kernel
    def scatter(x: lang64.types.ndarray(), k: lang64.types.ndarray(dtype=lang64.i32), y: lang64.types.ndarray()):
        lang64.loop_config(serialize=True)
        for _ in range(1):
            if lang64.static(form == "for"):
                for j in range(k.shape[0]):
                    y[k[j]] = lang64.sin(x[j % x.shape[0]])
            elif lang64.static(form == "while"):
                j = 0
                while j < k.shape[0]:
                    y[k[j]] = lang64.sin(x[j % x.shape[0]])
                    j += 1
            else:
                for a in range(2):
                    for j in range(k.shape[0]):
                        y[k[j]] = lang64.sin(x[(j + a) % x.shape[0]])

    x = torch.rand(5, dtype=torch.float64)
    k = torch.tensor([2, 0, 2, 3, 0, 2, 1], dtype=torch.int32)
    c = torch.rand(5, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(scatter(leaf, k), leaf, c)
    torch.testing.assert_close(gradient, ts.oracle(scatter, x, k, cotangents=c).gradients["x"])
