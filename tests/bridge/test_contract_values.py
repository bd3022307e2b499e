"""Every row of the table against its twin: float32 as users run it, float64, half precision, and large sizes."""

import pytest
import torch

import cases

pytestmark = pytest.mark.thinned(8)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_float32(lang, case):
    inputs = case.inputs(torch.float32, seed=2)
    cases.assert_same_values_and_gradients(case.op(lang, torch.float32), case.expected, inputs)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_float64(lang64, case):
    inputs = case.inputs(torch.float64, seed=3)
    cases.assert_same_values_and_gradients(case.op(lang64, torch.float64), case.expected, inputs)


HALF = cases.select_cases(
    "square", "branches", "convolution", "gather", "two_outputs", "chained", "batched", "returned"
)


@pytest.mark.parametrize("case", HALF, ids=str)
def test_float16_is_computed_in_float32_and_cast_back(lang, case):
    inputs = case.inputs(torch.float16)
    floats = [v.float() if torch.is_tensor(v) and v.is_floating_point() else v for v in inputs]
    op, twin = case.op(lang, torch.float32), case.expected

    def half(value):
        return value.half() if value.is_floating_point() else value

    mine, want = cases.list_tensors(op(*inputs)), [half(v) for v in cases.list_tensors(twin(*floats))]
    cases.assert_close(tuple(mine), tuple(want))
    got = cases.compute_gradients(op, inputs)
    assert all(g.dtype == torch.float16 for g in got)
    cases.assert_close(got, tuple(g.half() for g in cases.compute_gradients(twin, floats)), rtol=2e-2, atol=2e-2)


# Sizes on both sides of whatever chooses between one thread and many.
LARGE = {
    "square": lambda draw, n: (draw(n),),
    "dot": lambda draw, n: (draw(n), draw(n)),
    "convolution": lambda draw, n: (draw(n), draw(5)),
    "scatter": lambda draw, n: (draw(n), draw.integers(n, below=4)),
    "gather": lambda draw, n: (draw(11), draw.integers(n, below=11)),
    "two_loops": lambda draw, n: (draw(n),),
    "compositing": lambda draw, n: (draw(n // 8, 8, low=0.05, high=0.5), draw(n // 8, 8)),
    "cross": lambda draw, n: (draw(n, 3), draw(n, 3)),
    "chained": lambda draw, n: (draw(n), draw(n)),
    "batched": lambda draw, n: (draw(n // 8, 8), draw(n // 8), draw(8)),
}


@pytest.mark.compiled_engine
@pytest.mark.parametrize("size", [64, 3_000, 200_000])
@pytest.mark.parametrize("name", LARGE)
def test_sizes(lang64, name, size):
    case = cases.select_cases(name)[0]
    inputs = LARGE[name](cases.Draw(torch.float64), size)
    tolerance = {"rtol": 1e-8, "atol": 1e-7}  # sums of 200 000 in another order
    cases.assert_same_values_and_gradients(case.op(lang64, torch.float64), case.expected, inputs, **tolerance)


@pytest.mark.compiled_engine
def test_growing_and_shrinking_calls(lang64):
    """A plan cached for one size must not serve another."""
    case = cases.select_cases("convolution")[0]
    op = case.op(lang64, torch.float64)
    for size, width in ((5, 2), (50_000, 3), (7, 7), (6, 1), (50_000, 2)):
        inputs = (torch.rand(size, dtype=torch.float64), torch.rand(width, dtype=torch.float64))
        cases.assert_same_values_and_gradients(op, case.expected, inputs, rtol=1e-8, atol=1e-8)


def test_one_op_serves_several_dtypes_and_ranks(lang64):
    square, any_rank = (case.op(lang64, torch.float64) for case in cases.select_cases("square", "any_rank"))
    for dtype in (torch.float64, torch.float32, torch.float16, torch.float64, torch.float32):
        x = torch.rand(5, dtype=torch.float64).to(dtype)
        cases.assert_same_values_and_gradients(square, lambda x: x * x, (x,))
        for shape in ((3,), (2, 3), (2, 1, 3)):
            x, k = (torch.rand(shape, dtype=torch.float64).to(dtype) for _ in range(2))
            cases.assert_same_values_and_gradients(any_rank, lambda x, k: torch.cos(x) * k * k, (x, k))
