"""A backward pass after a restart of the engine: the gradients of its fields have no memory any more."""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.each_engine


@pytest.mark.parametrize("is_rollout", [False, True])
def test_fields_that_are_gone(lang64, is_rollout):
    lang = lang64
    x, y = (lang.field(lang.f64, 3, needs_grad=True) for _ in range(2))

    @lang.kernel
    def square():
        for i in range(3):
            y[i] = x[i] ** 2

    layer = ts.EmptyTin().register_input_field(x, "x").register_output_field(y).register_kernel(square).finish()
    run = ts.rollout(lambda: square(), {"x": x}, {"y": y}) if is_rollout else layer
    result = run(torch.rand(3, dtype=torch.float64, requires_grad=True))
    lang.init(lang.cpu, default_fp=lang.f64)
    with pytest.raises(ts.EngineError, match="`x` of .* was destroyed"):
        result.sum().backward()
    with pytest.raises(ts.EngineError, match="`x` of .* was destroyed"):
        ts.check(layer, torch.rand(3, dtype=torch.float64))
