"""A cotangent that is NaN makes gradients NaN, as in torch: engines hold `nan != 0` for false, so no guard may ask it.

Each kernel guards its gradient in its own way: functions with infinite derivatives, sums of loops that may add nothing,
vectors of machines, and lanes.
"""

# pyright: reportInvalidTypeForm=false

import pytest
import torch

import tinsmith as ts


def functions(lang, real):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in x:
            y[i] = lang.sqrt(x[i]) + lang.log(x[i]) / x[i] + lang.exp(x[i]) + x[i] ** 1.5 + lang.atan2(x[i], x[i])

    return "x[n] -> y[n]", kernel, lambda x: x.sqrt() + x.log() / x + x.exp() + x**1.5 + torch.atan2(x, x), (64,)


def gathered(lang, real):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            k = (7 * i) % x.shape[0]
            for j in range(3):
                y[i] += x[k] * (j + 1)

    return "x[n] -> y[n]", kernel, lambda x: 6 * x[(7 * torch.arange(len(x))) % len(x)], (64,)


def composited(lang, real):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            through = real(1.0)
            for j in range(x.shape[1]):
                e = lang.exp(-x[i, j])
                y[i] += through * (real(1.0) - e) * x[i, j]
                through *= e

    def twin(x):
        e = torch.exp(-x)
        through = torch.cat([torch.ones_like(e[:, :1]), e[:, :-1]], 1).cumprod(1)
        return (through * (1 - e) * x).sum(1)

    return "x[n, m] -> y[n]", kernel, twin, (40, 33)


def marched(lang, real):
    """Build a loop whose trip count depends on data, and that runs in lanes in float32."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            t, total = real(0.0), real(0.0)
            while t < 4.0:
                total += lang.exp(-t * x[i]) * lang.sqrt(x[i] + t)
                t += 0.5
            y[i] = total

    def twin(x):
        return sum(torch.exp(-t * x) * torch.sqrt(x + t) for t in torch.arange(0, 4, 0.5, dtype=x.dtype))

    return "x[n] -> y[n]", kernel, twin, (64,)


def normed(lang, real):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            y[i] = lang.Vector([x[i, 0], x[i, 1]]).norm()

    return "x[n, 2] -> y[n]", kernel, lambda x: x.norm(dim=1), (64, 2)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("serial_below", [0, 10**9])
@pytest.mark.parametrize("fp", ["f32", "f64"])
@pytest.mark.parametrize("case", [functions, gathered, composited, marched, normed])
def test_a_nan_cotangent(lang, case, fp, serial_below, bad, configure):
    configure(serial_below=str(serial_below))
    spec, kernel, twin, shape = case(lang, getattr(lang, fp))
    op = ts.op(spec)(kernel)
    x = (torch.rand(shape) + 0.25).to({"f32": torch.float32, "f64": torch.float64}[fp]).requires_grad_()
    y = op(x)
    cotangent = torch.ones_like(y)
    cotangent[[3, 20]] = bad
    (ours,), (wanted,) = (torch.autograd.grad(made, x, cotangent) for made in (y, twin(x)))
    assert torch.equal(ours.isfinite(), wanted.isfinite())
    torch.testing.assert_close(ours, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_a_root_and_a_length_at_zero(lang):
    """Guards still keep infinite derivatives out where nothing comes back."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            y[i] = lang.sqrt(x[i]) * 0.0 + lang.Vector([x[i], x[i]]).norm()

    x = torch.zeros(20, requires_grad=True)
    for seed in (0.0, -0.0):
        (gradient,) = torch.autograd.grad(ts.op("x[n] -> y[n]")(kernel)(x), x, torch.full((20,), seed))
        assert not gradient.any()
