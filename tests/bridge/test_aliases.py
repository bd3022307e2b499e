"""Two indices that name one element: the engines' optimizers take what was read before for what is there now."""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def moved(lang, form, **options):
    """Build a kernel that adds to an element by one index and reads it by another, before and after."""

    @ts.op("x[n], k[n]: i32 -> y[n], z[n]", races="allow", **options)
    @lang.kernel
    def move(
        x: lang.types.ndarray(),
        k: lang.types.ndarray(dtype=lang.i32),
        y: lang.types.ndarray(),
        z: lang.types.ndarray(),
    ):
        for i in x:
            y[i] = x[i]
        for i in x:
            if lang.static(form == "atomic"):
                a = y[i]
                y[k[i]] += a * a
            else:
                y[k[i]] = (y[i] * 0.7 + x[i]) + y[k[i]]
            z[i] = y[i] * x[i]

    return move


@pytest.mark.parametrize("form", ["atomic", "store"])
@pytest.mark.parametrize("size", [5, 100_000])
def test_values(lang64, form, size):
    x, k = torch.rand(size, dtype=torch.float64), every_one_its_own(size)
    y, z = moved(lang64, form)(x, k)
    torch.testing.assert_close(y, wanted(x, form))
    torch.testing.assert_close(z, wanted(x, form) * x)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("size", [5, 100_000])
def test_gradients(lang64, size):
    x, k = torch.rand(size, dtype=torch.float64, requires_grad=True), every_one_its_own(size)
    y, z = moved(lang64, "store")(x, k)
    gradients = torch.autograd.grad(y.sum() + z.sum(), x)
    torch.testing.assert_close(gradients, torch.autograd.grad((wanted(x, "store") * (1 + x)).sum(), x))


def every_one_its_own(size):
    """Return indices that are all different, which no compiler can know."""
    return torch.arange(size, dtype=torch.int32)


def wanted(x, form):
    return x + x * x if form == "atomic" else (x * 0.7 + x) + x


def test_tangents_of_vectors(lang64):
    """`v[i]` and `v[i % n]` are one element; their difference moves by nothing."""
    vec2 = lang64.types.vector(2, lang64.f64)

    @ts.op("p[n, 2] -> v[n, 2]", races="allow")
    @lang64.kernel
    def differ(p: lang64.types.ndarray(dtype=vec2, ndim=1), v: lang64.types.ndarray(dtype=vec2, ndim=1)):
        lang64.loop_config(serialize=True)
        for i in range(1, p.shape[0]):
            v[p.shape[0] - 1] = v[p.shape[0] - 1] + lang64.max(p[i], v[i])
            v[i] = v[i % p.shape[0]] - v[i]

    p, direction = torch.rand(5, 2, dtype=torch.float64), torch.rand(5, 2, dtype=torch.float64)
    _, moved = torch.func.jvp(differ, (p,), (direction,))
    torch.testing.assert_close(moved, torch.zeros_like(moved))
