"""Numbers that a kernel is called with: Python's `float` and `int` are the engine's default types."""

import pytest
import torch

import tinsmith as ts

NUMBERS = [
    pytest.param(float, 0.7071067811865476, id="a float"),
    pytest.param(int, -70_000, id="an int"),
]


@pytest.mark.parametrize(("annotation", "value"), NUMBERS)
def test_a_number_has_the_default_type(lang64, annotation, value):
    """It was cut to f16 or i8, the first types that the annotation may stand for."""

    @lang64.kernel
    def scaled(x: lang64.types.ndarray(ndim=1), a: annotation, y: lang64.types.ndarray(ndim=1)):
        for i in x:
            y[i] = a * x[i]

    op = ts.op("x[n] -> y[n]", engine="python")(scaled)
    right = torch.full((3,), value, dtype=torch.float64)
    assert torch.equal(op(torch.ones(3, dtype=torch.float64), value), right)
