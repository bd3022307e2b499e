"""A layer of thousands of launches: what a call costs grows with their number, and no faster."""

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith.compiling._stage import Stage
from tinsmith.frontend.uses import _later_changes

MASSES = 4


def springs(lang, steps, **how):
    """Build masses on springs, one launch per step: positions and velocities of all steps in two fields.

    Only on tensors does a mass read its neighbor: Quadrants' reverse mode refuses `x[t, i - 1]` beside `x[t + 1, i]`.
    """
    beside = 1 if how else 0
    x, v = (lang.field(lang.f64, shape=(steps + 1, MASSES), needs_grad=True) for _ in range(2))
    start, end = (lang.field(lang.f64, shape=MASSES, needs_grad=True) for _ in range(2))

    @lang.kernel
    def begin():
        for i in start:
            x[0, i] = start[i]

    @lang.kernel
    def step(t: lang.i32, dt: lang.f64):
        for i in range(MASSES):
            force = -x[t, i]
            if i > 0:
                force += x[t, i - beside] * x[t, i]
            v[t + 1, i] = v[t, i] + dt * force
            x[t + 1, i] = x[t, i] + dt * v[t + 1, i]

    @lang.kernel
    def finish(t: lang.i32):
        for i in end:
            end[i] = x[t, i]

    layer = ts.EmptyTin(**how).register_input_field(start).register_output_field(end).register_kernel(begin)
    for t in range(steps):
        layer.register_kernel(step, t, 0.1 / (t + 1), kernel_name=f"step {t}")
    return layer.register_kernel(finish, steps).finish()


def sprung(x, steps, beside):
    v = torch.zeros_like(x)
    for t in range(steps):
        force = -x + torch.cat([torch.zeros(1, dtype=x.dtype), x[1 - beside : MASSES - beside] * x[1:]])
        v = v + 0.1 / (t + 1) * force
        x = x + 0.1 / (t + 1) * v
    return x


@pytest.mark.parametrize("how", [{}, {"on_tensors": True}], ids=["on fields", "on tensors"])
def test_values_and_gradients(lang64, how):
    layer, steps = springs(lang64, 12, **how), 12
    for _ in range(2):
        x, c = torch.rand(2, MASSES, dtype=torch.float64)
        x.requires_grad_()
        result, expected = layer(x), sprung(x, steps, 1 if how else 0)
        cases.assert_close(result, expected)
        cases.assert_close(torch.autograd.grad(result, x, c), torch.autograd.grad(expected, x, c))


def counted(monkeypatch, owner, name):
    """Return a list that grows by one with each call of a function."""
    calls = []
    original = getattr(owner, name)

    def counting(*arguments, **named):
        calls.append(name)
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls


def first_call(lang, steps):
    springs(lang, steps)(torch.rand(MASSES, dtype=torch.float64).requires_grad_()).sum().backward()


def test_a_kernel_is_analyzed_once_however_often_it_is_launched(lang64, monkeypatch):
    stages = counted(monkeypatch, Stage, "__init__")
    first_call(lang64, 4)
    few = len(stages)
    first_call(lang64, 40)
    assert len(stages) == 2 * few


def test_analysis_is_not_quadratic_in_the_launches(lang64, monkeypatch):
    compared = counted(monkeypatch, _later_changes, "never_alias")
    first_call(lang64, 40)
    assert len(compared) < 40


def test_on_tensors_kernels_are_compiled_once_and_no_array_is_copied(lang64, monkeypatch):
    x, counts = torch.rand(MASSES, dtype=torch.float64).requires_grad_(), []
    for steps in (4, 40):
        layer = springs(lang64, steps, on_tensors=True)
        with monkeypatch.context() as patch:
            compiled = counted(patch, type(layer._inputs[0].engine), "compile")
            copied = counted(patch, torch.Tensor, "clone")
            layer(x).backward(torch.ones(MASSES, dtype=torch.float64))
            counts.append(len(compiled))
            for _ in range(3):
                layer(x).backward(torch.ones(MASSES, dtype=torch.float64))
        assert len(compiled) == counts[-1]  # nothing in later calls
        assert not copied
    assert counts[0] == counts[1]


def test_overwritten_arrays_are_copied_once_per_launch(lang64, monkeypatch):
    x, y, s = (lang64.field(lang64.f64, shape=MASSES, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def begin():
        for i in x:
            s[i] = x[i]

    @lang64.kernel
    def step():
        for i in s:
            s[i] = s[i] * s[i]

    @lang64.kernel
    def finish():
        for i in y:
            y[i] = s[i]

    layer = ts.EmptyTin(on_tensors=True).register_input_field(x).register_output_field(y).register_kernel(begin)
    for t in range(10):
        layer.register_kernel(step, kernel_name=f"step {t}")
    layer.register_kernel(finish).finish()
    copied = counted(monkeypatch, torch.Tensor, "clone")
    layer(torch.rand(MASSES, dtype=torch.float64).requires_grad_()).backward(torch.ones(MASSES, dtype=torch.float64))
    assert len(copied) <= 2 * 10 + 2
