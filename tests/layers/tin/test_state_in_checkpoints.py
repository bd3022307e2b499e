"""A layer with a state, in what a checkpoint runs again: it begins with another state there, and says so."""

import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import cases
import tinsmith as ts

N = 4


def average(lang, *, has_state=True):
    """y = s², with an average s of inputs that goes on from call to call, or begins anew."""
    x, s, y = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(3))

    @lang.kernel
    def begin():
        for i in s:
            s[i] = 0.0

    @lang.kernel
    def update():
        for i in x:
            s[i] = 0.3 * x[i] + 0.7 * s[i]
            y[i] = s[i] ** 2

    layer = ts.EmptyTin()
    layer = layer if has_state else layer.register_kernel(begin)
    layer = layer.register_kernel(update).register_input_field(x, name="x")
    return layer.register_internal_field(s, name="s").register_output_field(y, name="y").finish()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_it_warns(lang64, use_reentrant):
    layer = average(lang64)
    x = torch.rand(N, dtype=torch.float64, requires_grad=True)
    y = checkpoint(layer, x, use_reentrant=use_reentrant)
    with pytest.warns(UserWarning, match="EmptyTin is run again in a backward pass, and begins with .* `s`"):
        y.sum().backward()


@pytest.mark.parametrize("has_state", [False, True])
def test_it_is_quiet_elsewhere(lang64, has_state):
    """In calls outside of checkpoints, and in a checkpoint where each call begins anew."""
    layer = average(lang64, has_state=has_state)
    x = torch.rand(N, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = layer(x) if has_state else checkpoint(layer, x, use_reentrant=False)
        y.sum().backward()
    cases.assert_close(x.grad, (2 * 0.3**2 * x).detach())
