"""Pitfall 31: bfloat16 dies in the engines with an AttributeError; here it is refused with the remedy."""

import pytest
import torch

import tinsmith as ts


def test_bfloat16_names_the_argument_and_the_remedy(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * 2.0

    x = torch.randn(3).bfloat16()
    with pytest.raises(ts.TinsmithError, match=r"(?s)`x`.*`double`.*bfloat16.*\.float\(\)"):
        double(x)
    with pytest.raises(TypeError, match="bfloat16"):
        double(x.requires_grad_())
    torch.testing.assert_close(double(x.float()), 2 * x.float())
