"""Layers take tensors in order: a call by name says so, and names what the layer takes."""

import pytest
import torch

import tinsmith as ts


def make_tin(lang, **options):
    x, y = lang.field(lang.f64, 3), lang.field(lang.f64, 3)

    @lang.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    return ts.EmptyTin(**options).register_input_field(x, "x").register_output_field(y).register_kernel(double).finish()


def make_tin_on_tensors(lang):
    return make_tin(lang, on_tensors=True)


def make_tube(lang):
    @lang.kernel
    def double(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = 2.0 * x[i]

    tube = (
        ts.Tube().register_input_tensor((3,), torch.float64, "x").register_output_tensor((3,), torch.float64, "y", True)
    )
    return tube.register_kernel(double, ["x", "y"]).finish()


@pytest.mark.parametrize("make", [make_tin, make_tin_on_tensors, make_tube])
@pytest.mark.parametrize("is_in_order_too", [False, True])
def test_a_call_by_name_is_refused(lang64, make, is_in_order_too):
    layer, x = make(lang64), torch.rand(3, dtype=torch.float64)
    words = r"(?s)takes its inputs in order, not by name\n  inputs  x\n  got     (x|z) by name\nPass one tensor"
    with pytest.raises(ts.ArgumentError, match=words):
        layer(x, z=x) if is_in_order_too else layer(x=x)
    torch.testing.assert_close(layer(x), 2 * x)
