"""Pitfall 40: an attribute or a global read by a kernel is frozen when it is compiled.

Through an op a value that changed is used: the kernel is compiled again.
"""

import importlib
import sys

import pytest
import torch

import tinsmith as ts


def check(op, factor):
    """Assert value and gradient of y = factor * x * x."""
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    y = op(x)
    torch.testing.assert_close(y, factor * x * x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * factor * x.detach())


def test_an_attribute_that_changed(lang64):
    @lang64.data_oriented
    class Scaler:
        def __init__(self):
            self.scale = 2.0

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = self.scale * x[i] * x[i]

    scaler = Scaler()
    op = ts.op("x[n] -> y[n]")(scaler.run)
    for scale in (2.0, 5.0, -1.5, 2.0):
        scaler.scale = scale
        check(op, scale)


def test_an_attribute_of_a_static_loop_that_changed(lang64):
    @lang64.data_oriented
    class Adder:
        def __init__(self):
            self.times = 1

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                for _ in lang64.static(range(self.times)):
                    y[i] += x[i] * x[i]

    adder = Adder()
    op = ts.op("x[n] -> y[n]")(adder.run)
    for times in (1, 4, 2):
        adder.times = times
        check(op, float(times))


WAYS = {
    "called": lambda op: op,
    "mapped": lambda op: lambda x: torch.func.vmap(op)(x[None])[0],
    "compiled": lambda op: torch.compile(op, backend="aot_eager", fullgraph=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_change_between_forward_and_backward_is_right_or_refused(lang64, way):
    """The gradient is that of the forward pass, or refused."""

    @lang64.data_oriented
    class Scaler:
        def __init__(self):
            self.scale = 2.0

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = self.scale * x[i] * x[i]

    scaler = Scaler()
    op = WAYS[way](ts.op("x[n] -> y[n]")(scaler.run))
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    y = op(x)
    scaler.scale = 100.0
    try:
        y.sum().backward()
    except ts.GradientError as refused:
        words = str(refused)
    else:
        torch.testing.assert_close(x.grad, 4 * x.detach())
        return
    assert "`run`" in words and "changed" in words


def test_a_captured_variable_that_changed(lang64):
    scale = 2.0

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = scale * x[i] * x[i]

    check(run, 2.0)
    scale = 5.0
    check(run, 5.0)


def test_a_global_that_changed(lang64, monkeypatch):
    at_module_level = importlib.import_module("cases.at_module_level")
    op = getattr(at_module_level, f"{lang64.__name__}_gain")
    x = torch.randn(3, dtype=torch.float64)
    for gain in (2.0, 7.0, 2.0):
        monkeypatch.setattr(at_module_level, "GAIN", gain)
        torch.testing.assert_close(op(x), gain * x)


def test_a_global_that_changed_in_a_function_of_the_engine(lang64):
    module = sys.modules[__name__]
    module.OFFSET = 1.0

    @lang64.func
    def shifted(v):
        return (v + OFFSET) * v

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = shifted(x[i])

    x = torch.randn(3, dtype=torch.float64)
    for offset in (1.0, 3.0):
        module.OFFSET = offset
        torch.testing.assert_close(run(x), (x + offset) * x)


OFFSET = 1.0
