"""A layer with a state, in what a checkpoint runs again: it begins with another state there, and says so."""

import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import cases
import tinsmith as ts

N = 4


WAYS = {"generated": {}, "the engine's": {"adjoint": "engine"}}
NAMES = [pytest.param(way, marks=pytest.mark.compiled_engine if way == "the engine's" else ()) for way in WAYS]
"""Where the gradient comes from."""


def average(lang, *, has_state=True, **options):
    """Make y = s², with an average s of inputs that continues from call to call, or restarts."""
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

    layer = ts.EmptyTin(**options)
    layer = layer if has_state else layer.register_kernel(begin)
    layer = layer.register_kernel(update).register_input_field(x, name="x")
    return layer.register_internal_field(s, name="s").register_output_field(y, name="y").finish()


def squares(lang, **options):
    """Make y = x² through a field that each call overwrites before it reads it."""
    x, between, y = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(3))

    @lang.kernel
    def copy(source: lang.template(), target: lang.template()):
        for i in source:
            target[i] = source[i]

    @lang.kernel
    def square(source: lang.template(), target: lang.template()):
        for i in source:
            target[i] = source[i] * source[i]

    layer = ts.EmptyTin(**options).register_input_field(x, name="x").register_output_field(y, name="y")
    layer = layer.register_internal_field(between, name="between")
    return layer.register_kernel(copy, x, between).register_kernel(square, between, y).finish()


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("way", NAMES)
def test_a_layer_with_state_warns_in_a_checkpoint(lang64, way, use_reentrant):
    layer = average(lang64, **WAYS[way])
    x = torch.rand(N, dtype=torch.float64, requires_grad=True)
    y = checkpoint(layer, x, use_reentrant=use_reentrant)
    with pytest.warns(UserWarning, match="EmptyTin is run again in a backward pass, and may begin with .* `s`"):
        y.sum().backward()


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("way", NAMES)
def test_no_warning_outside_of_checkpoints_or_without_state(lang64, way, has_state):
    """In calls outside of checkpoints, and in a checkpoint where each call begins anew."""
    layer = average(lang64, has_state=has_state, **WAYS[way])
    x = torch.rand(N, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = layer(x) if has_state else checkpoint(layer, x, use_reentrant=False)
        y.sum().backward()
    cases.assert_close(x.grad, (2 * 0.3**2 * x).detach())


@pytest.mark.parametrize("way", NAMES)
def test_no_warning_about_a_field_that_each_call_overwrites(lang64, way):
    layer = squares(lang64, **WAYS[way])
    x = torch.rand(N, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint(layer, x, use_reentrant=False).sum().backward()
    cases.assert_close(x.grad, 2 * x.detach())
