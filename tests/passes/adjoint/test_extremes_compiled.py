"""Maxima and minima by atomics, compiled with fast maths: no winner is lost."""

import pytest
import torch

import tinsmith as ts


def group_maxima(lang):
    """Build a kernel for the maximum of many calculated values of each group, which other iterations change too."""

    @ts.op("x[n], k[n], w[1] -> y[700]", adjoint="source")
    @lang.kernel
    def best(x: lang.types.ndarray(), k: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for g in y:
            y[g] = -1e30
        for i in x:
            for j in range(3):
                v = lang.exp(lang.sin(x[i] * 3.1 + 0.7 * j) * 1.3) * (x[i] - 0.3) + lang.sqrt(x[i] + 1.0) * x[i]
                lang.atomic_max(y[k[i]], w[0] * (v / (1.7 + x[i] * x[i]) * (1.0 + 0.1 * j)))

    return best


def draw_arguments(dtype):
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(20_000, generator=generator, dtype=torch.float64).to(dtype)
    k = torch.randint(0, 700, (20_000,), generator=generator).int()
    return x.requires_grad_(), k, torch.tensor([1.3], dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_winner_is_lost(lang, dtype):
    """A factor of all candidates has the derivative `y / factor` of each maximum: one that lost its winner has 0."""
    x, k, w = draw_arguments(dtype)
    y = group_maxima(lang)(x, k, w)
    (gradient,) = torch.autograd.grad((y * y).sum(), w)
    torch.testing.assert_close(
        gradient, 2 * (y * y).sum()[None] / w, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=0
    )


def test_gradients_are_torch_s(lang64):
    x, k, w = draw_arguments(torch.float64)
    y = group_maxima(lang64)(x, k, w)
    j = torch.arange(3.0, dtype=torch.float64)[:, None]
    v = torch.exp(torch.sin(x * 3.1 + 0.7 * j) * 1.3) * (x - 0.3) + torch.sqrt(x + 1.0) * x
    v = w * (v / (1.7 + x * x) * (1.0 + 0.1 * j))
    empty = torch.full((700,), -1e30, dtype=torch.float64)
    wanted = empty.scatter_reduce(0, k.long().expand(3, -1).reshape(-1), v.reshape(-1), "amax")
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=0)
    cotangent = torch.randn_like(y)
    theirs = torch.autograd.grad(wanted, (x, w), cotangent)
    torch.testing.assert_close(torch.autograd.grad(y, (x, w), cotangent), theirs, rtol=1e-9, atol=1e-11)


def test_ties_are_shared_as_torch_shares_them(lang):
    """Calculated values that tie, within an iteration and with others'; and what stood there before."""

    @ts.op("x[n], k[n] -> y[4]", adjoint="source")
    @lang.kernel
    def best(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for g in y:
            y[g] = x[g] * 0.5
        for i in x:
            lang.atomic_max(y[k[i]], x[i] * 0.5)
            lang.atomic_max(y[k[i]], 0.5 * x[i])

    generator = torch.Generator().manual_seed(4)
    x = torch.randint(-2, 3, (40,), generator=generator).double().requires_grad_()
    k = torch.randint(0, 4, (40,), generator=generator).int()
    groups = [torch.cat([x[g : g + 1], x[k == g], x[k == g]]).amax() * 0.5 for g in range(4)]
    cotangent = torch.randn(4, dtype=torch.float64, generator=generator)
    (wanted,) = torch.autograd.grad(torch.stack(groups), x, cotangent)
    (gradient,) = torch.autograd.grad(best(x, k), x, cotangent)
    torch.testing.assert_close(gradient, wanted)


def test_candidates_without_a_gradient(lang64):
    """What stood there keeps its adjoint where it won, and loses it where a number did."""

    @ts.op("x[n] -> z[n]", adjoint="source")
    @lang64.kernel
    def capped(x: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for i in x:
            z[i] = lang64.sin(x[i])
        for i in x:
            lang64.atomic_min(z[i % 3], 0.4)

    x = torch.linspace(0.1, 1.4, 8, dtype=torch.float64)
    c = torch.rand(8, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(capped(leaf), leaf, c)
    torch.testing.assert_close(gradient, ts.oracle(capped, x, cotangents=c).gradients["x"])
