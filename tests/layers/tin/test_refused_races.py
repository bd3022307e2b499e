"""A layer whose kernel certainly races is refused a gradient, as an op is; its values it may have."""

import pytest
import torch

import tinsmith as ts


@pytest.mark.parametrize("is_sum", [True, False])
def test_a_race_on_fields(lang64, is_sum):
    @lang64.data_oriented
    class Sums:
        def __init__(self):
            self.x, self.y = (lang64.field(lang64.f64, 6, needs_grad=True) for _ in range(2))

        @lang64.kernel
        def run(self):
            for i in self.x:
                self.y[i] = self.x[i]
            for i in range(1, 6):
                if lang64.static(is_sum):
                    self.y[i] += 0.5 * self.y[i - 1]
                else:
                    self.y[i] = self.y[i - 1] + self.x[i]

    sums = Sums()
    layer = ts.Tin(sums).register_kernel("run").register_input_field(sums.x).register_output_field(sums.y).finish()
    assert layer(torch.rand(6, dtype=torch.float64)).shape == (6,)
    words = r"(?s)Tin.* has no gradient: its result depends on the order.*\[i - 1\]` in line.*serialize=True"
    with pytest.raises(ts.GradientError, match=words):
        layer(torch.rand(6, dtype=torch.float64).requires_grad_()).sum().backward()
