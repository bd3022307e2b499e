"""A loop over time in Python: one kernel, registered once a step."""

from typing import Any

import pytest
import torch

import cases
import tinsmith as ts

N, STEPS = 3, 4


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64) + 0.5


def graded(lang, shape: Any = N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


def stepping(lang, make, last=STEPS, **how):
    """Make x[last] from x[0], by a kernel that `make` builds for the field of all steps."""
    x, x0, y = graded(lang, (STEPS + 1, N)), graded(lang), graded(lang)

    @lang.kernel
    def begin():
        for i in x0:
            x[0, i] = x0[i]

    @lang.kernel
    def end():
        for i in y:
            y[i] = x[last, i]

    layer = ts.EmptyTin(**how).register_input_field(x0).register_output_field(y).register_kernel(begin)
    step = make(lang, x)
    for t in range(STEPS):
        layer.register_kernel(step, t, kernel_name=f"step{t}")
    return layer.register_kernel(end).finish()


def from_row_to_row(lang, x):
    @lang.kernel
    def step(t: lang.i32):
        for i in range(N):
            x[t + 1, i] = x[t, i] * x[t, i]

    return step


def by_a_function(lang, x):
    @lang.func
    def squared(t, i):
        return x[t, i] * x[t, i]

    @lang.kernel
    def step(t: lang.i32):
        now = t
        for i in range(N):
            x[1 + now, i] = squared(now, i)

    return step


def by_a_method(lang, x):
    @lang.data_oriented
    class Sim:
        def __init__(self):
            self.x = x

        @lang.func
        def squared(self, t, i):
            return self.x[t, i] * self.x[t, i]

        @lang.kernel
        def step(self, t: lang.i32):
            for i in range(N):
                self.x[t + 1, i] = self.squared(t, i)

    return Sim().step


@pytest.mark.parametrize("on_tensors", [False, True])
@pytest.mark.parametrize("make", [from_row_to_row, by_a_function, by_a_method])
def test_steps_that_write_rows_of_their_own(lang64, make, on_tensors):
    layer = stepping(lang64, make, on_tensors=on_tensors)
    x, c = rand(N).requires_grad_(), rand(N)
    y = layer(x)
    cases.assert_close(y, x**16)
    cases.assert_close(torch.autograd.grad(y, x, c), (16 * x**15 * c,))


def in_turns(lang, x):
    """Build steps on two alternating rows: values are overwritten two steps after they were read."""

    @lang.kernel
    def step(t: lang.i32):
        for i in range(N):
            x[(t + 1) % 2, i] = x[t % 2, i] * x[t % 2, i]

    return step


def in_place(lang, x):
    @lang.kernel
    def step(t: lang.i32):
        for i in range(N):
            x[0, i] = x[0, i] * x[0, i] + 0 * t

    return step


def into_the_row_before(lang, x):
    """Make a layer in which a step changes what the previous one read."""

    @lang.kernel
    def step(t: lang.i32):
        for i in range(N):
            x[t + 1, i] = x[t, i] * x[t, i]
        for i in range(N):
            if t > 0:
                x[t - 1, i] = 0.0

    return step


@pytest.mark.compiled_engine
@pytest.mark.parametrize("make", [in_turns, in_place, into_the_row_before])
def test_steps_that_overwrite_what_the_engine_reads_are_refused(lang64, make):
    layer = stepping(lang64, make, adjoint="engine")
    with pytest.raises(ts.GradientError, match=r"(?s)a value of `x` that its gradient needs.*leave out `adjoint="):
        layer(rand(N).requires_grad_())


@pytest.mark.compiled_engine
def test_the_message_of_a_refused_step(lang64):
    with pytest.raises(ts.GradientError) as refused:
        stepping(lang64, into_the_row_before, adjoint="engine")(rand(N).requires_grad_())
    lines = str(refused.value).splitlines()
    assert lines[0] == "op `EmptyTin` changes a value of `x` that its gradient needs, after `step` read it"
    assert lines[1].startswith("  changed by `step`  ")
    assert lines[2] == "Give each kernel a separate field to write to, or leave out `adjoint='engine'`."


@pytest.mark.thinned(4)
@pytest.mark.parametrize("on_tensors", [False, True])
@pytest.mark.parametrize(("make", "last"), [(in_turns, 0), (in_place, 0), (into_the_row_before, STEPS)])
def test_steps_may_overwrite(lang64, make, last, on_tensors):
    """The generated gradient is that of the values which the forward pass had."""
    layer = stepping(lang64, make, last, on_tensors=on_tensors)
    x, c = rand(N).requires_grad_(), rand(N)
    y = layer(x)
    cases.assert_close(y, x**16)
    cases.assert_close(torch.autograd.grad(y, x, c), (16 * x**15 * c,))


@pytest.mark.compiled_engine
def test_new_kernel_arguments_are_checked_again(lang64):
    """A step that is told to write another row may spoil what was right."""
    layer = stepping(lang64, from_row_to_row, adjoint="engine")
    layer(rand(N).requires_grad_())
    layer.set_kernel_args("step3", 1)
    with pytest.raises(ts.GradientError, match="changes a value of `x`"):
        layer(rand(N).requires_grad_())


@pytest.mark.compiled_engine
def test_a_kernel_that_is_registered_again_is_compiled_once(lang64, monkeypatch):
    layer = stepping(lang64, from_row_to_row)
    engine = type(layer._inputs[0].engine)
    compiled, plain = [], engine.compile

    def counted(self, function, *arguments, **named):
        compiled.append(function.__name__)
        return plain(self, function, *arguments, **named)

    monkeypatch.setattr(engine, "compile", counted)
    layer(rand(N).requires_grad_()).sum().backward()
    assert compiled.count("step") == 1


def test_kernels_of_two_objects_are_distinct(lang64):
    """Each reads the fields of its own."""

    @lang64.data_oriented
    class Sim:
        def __init__(self, factor):
            self.factor = graded(lang64)
            self.factor.fill(factor)

        @lang64.kernel
        def times(self):
            for i in y:
                y[i] += x[i] * self.factor[i]

    x, y, a, b = graded(lang64), graded(lang64), Sim(2.0), Sim(3.0)
    layer = ts.EmptyTin(_auto_clear=True).register_input_field(x).register_output_field(y)
    layer.register_kernel(a.times, kernel_name="a").register_kernel(b.times, kernel_name="b").finish()
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, 5 * given)
    cases.assert_close(torch.autograd.grad(result, given, c), (5 * c,))
