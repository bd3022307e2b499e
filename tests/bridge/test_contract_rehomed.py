"""`engine="quadrants"`: kernels written for Taichi run on Quadrants, unchanged."""

import pytest
import torch

import cases
import tinsmith as ts
from support.engine_keeper import Configuration

ROWS = cases.named(
    "bilinear", "rotated", "polynomial", "functions", "method", "template_arrays", "gather", "splat", "learnable_scalar"
)


@pytest.fixture
def ti(engine_keeper):
    """Taichi, with both engines running in float64."""
    engine_keeper.ensure("quadrants", Configuration(default_fp="f64"))
    return engine_keeper.ensure("taichi", Configuration(default_fp="f64"))


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_rows_of_the_table(ti, monkeypatch, case):
    op = ts.op
    monkeypatch.setattr(ts, "op", lambda spec, **options: op(spec, engine="quadrants", **options))
    rehomed = case.build(ti, ti.f64)
    assert "quadrants" in str(rehomed.engine).lower()
    cases.assert_same_values_and_gradients(
        lambda *inputs: rehomed(*inputs, **case.keywords), case.expected, case.inputs(torch.float64)
    )


def test_what_taichi_gets_wrong_quadrants_gets_right(ti):
    """exp of a loop-carried value, summed in an inner loop: silently wrong in Taichi 1.7.4 (pitfall 88)."""

    @ts.op("x[n] -> y[n]", engine="quadrants")
    @ti.kernel
    def waves(x: ti.types.ndarray(ndim=1), y: ti.types.ndarray(ndim=1)):
        for i in x:
            s = 0.0
            v = x[i]
            for _ in range(4):
                v = v * 0.5 + x[i]
                s += ti.exp(-v)
            y[i] = s

    def twin(x):
        total, v = 0.0, x
        for _ in range(4):
            v = v * 0.5 + x
            total = total + torch.exp(-v)
        return total

    cases.assert_same_values_and_gradients(waves, twin, (torch.rand(5, dtype=torch.float64),))


def test_the_same_kernel_serves_both_engines_at_once(ti):
    @ti.kernel
    def cubed(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    x = torch.rand(4, dtype=torch.float64)
    for op in (ts.op("x[n] -> y[n]")(cubed), ts.op("x[n] -> y[n]", engine="quadrants")(cubed)):
        cases.assert_same_values_and_gradients(op, lambda x: x**3, (x,))
    y = torch.zeros_like(x)
    cubed(x, y)  # and still is the user's kernel
    cases.assert_close(y, x**3)
