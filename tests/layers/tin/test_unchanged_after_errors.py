"""A layer whose kernel the engine cannot compile leaves its fields as they are."""

import numpy as np
import pytest
import torch

import tinsmith as ts


@pytest.mark.compiled_engine
def test_fields_when_a_kernel_does_not_compile(lang64):
    @lang64.data_oriented
    class Body:
        def __init__(self):
            self.x, self.y = (lang64.field(lang64.f64, 3) for _ in range(2))
            self.gain = 1.0

        @lang64.kernel
        def step(self):
            for i in self.x:
                self.y[i] = self.x[i] * self.gain

        @lang64.kernel
        def change(self):
            for i in self.x:
                self.gain = 3.0
                self.y[i] = self.x[i]

    body = Body()
    body.x.fill(6.0)
    body.y.fill(7.0)
    layer = ts.EmptyTin().register_input_field(body.x).register_output_field(body.y, clear=False)
    layer.register_kernel(body.step).register_kernel(body.change).finish()
    with pytest.raises(ts.KernelError, match="gain"):
        layer(torch.ones(3, dtype=torch.float64))
    np.testing.assert_array_equal(body.x.to_numpy(), np.full(3, 6.0))
    np.testing.assert_array_equal(body.y.to_numpy(), np.full(3, 7.0))
    assert body.gain == 1.0
