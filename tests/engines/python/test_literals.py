"""Floats that a kernel holds have the default type first, also next to float64: `x * 0.1` is `x * f64(f32(0.1))`."""

import pytest
import torch

import tinsmith as ts

CAPTURED = 0.1


@pytest.mark.each_engine
def test_literals_next_to_float64(lang):
    pair = lang.types.vector(2, lang.f64)
    two = lang.types.struct(a=lang.f64, b=lang.f64)

    @lang.func
    def typed(v: lang.f64):
        return v * 2.0

    @lang.func
    def converted() -> lang.f64:
        return 0.1

    @lang.kernel
    def literals(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i, 0] = x[i] * 0.1 + lang.Vector([0.1, 0.2], dt=lang.f64)[0]
            y[i, 1] = pair(0.1)[1] + pair(0.1, 0.2)[1]
            s = two(a=0.1, b=x[i])
            s.b += 0.1
            y[i, 2] = s.a + s.b
            a: lang.f64 = 0.1
            y[i, 3] = a + typed(0.1) + converted()
            y[i, 4] = lang.atomic_add(y[i, 4], 0.1) + min(x[i], 0.1) + lang.max(x[i], 0.1, 0.05)
            y[i, 5] = abs(-0.1) * x[i] + CAPTURED * x[i] + lang.static(0.1) * x[i] + float(0.1) * x[i]  # noqa: UP018
            y[i, 6] = lang.sqrt(0.1) * x[i] + x[i] % 0.1 + x[i] // 0.1
            y[i, 7] = 0.1 if x[i] > 0.0 else x[i]
            v = pair(x[i], x[i])
            v[0] = 0.1
            v.y += 0.1
            y[i, 8] = v[0] + v[1]
            y[i, 9] = lang.cast(1.0 / 3.0, lang.f64) + lang.select(x[i] > 100.0, x[i], 0.1)
            y[i, 10] = -0.1
            # A typed number is not rounded.
            y[i, 11] = lang.f64(0.1)

    x = torch.rand(3, dtype=torch.float64) + 0.1
    spec = "x[n] -> y[n, 12]"
    theirs, mine = ts.op(spec)(literals)(x), ts.op(spec, engine="python")(literals)(x)
    torch.testing.assert_close(mine, theirs, rtol=1e-15, atol=0.0)
    assert mine[0, 10] == -torch.tensor(0.1).double()
    assert mine[0, 11] == 0.1
