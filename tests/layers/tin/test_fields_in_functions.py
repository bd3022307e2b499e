"""Functions that name fields themselves: a gradient that the engine would get wrong is refused there too."""

import importlib.util
import textwrap
from typing import Any

import pytest
import torch

import cases
import tinsmith as ts

N = 3


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64) + 0.5


def graded(lang, shape: Any = N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


# Functions that return s[i] * s[i], each in its own way ------------------------------------------
def by_its_global_name(lang, s):
    @lang.func
    def squared(i):
        return s[i] * s[i]

    @lang.kernel
    def step():
        for i in s:
            s[i] = squared(i)

    return step


def by_a_function_of_a_function(lang, s):
    @lang.func
    def value(i):
        return s[i]

    @lang.func
    def times(i, by=1.0):
        return value(i) * by

    @lang.kernel
    def step():
        for i in s:
            s[i] = times(i, by=times(i))

    return step


def by_a_method(lang, s):
    @lang.data_oriented
    class Sim:
        def __init__(self):
            self.s = s

        @lang.func
        def squared(self, i):
            return self.s[i] * self.value(i)

        @lang.func
        def value(self, i):
            return self.s[i]

        @lang.kernel
        def step(self):
            for i in self.s:
                self.s[i] = self.squared(i)

    return Sim().step


def by_a_method_of_a_part(lang, s):
    @lang.data_oriented
    class Part:
        def __init__(self):
            self.s = s

        @lang.func
        def squared(self, i):
            return self.s[i] * self.s[i]

    @lang.data_oriented
    class Whole:
        def __init__(self):
            self.part = Part()

        @lang.kernel
        def step(self):
            for i in range(N):
                self.part.s[i] = self.part.squared(i)

    return Whole().step


def by_an_object_that_is_an_argument(lang, s):
    @lang.data_oriented
    class State:
        def __init__(self):
            self.s = s

    state = State()

    @lang.func
    def squared(i, of: lang.template()):
        return of.s[i] * of.s[i]

    @lang.kernel
    def step():
        for i in range(N):
            state.s[i] = squared(i, state)

    return step


def by_a_function_of_another_module(lang, s, folder):
    path = folder / "forces.py"
    path.write_text(
        textwrap.dedent(f"""\
        import {lang.__name__} as ti
        s = None

        @ti.func
        def squared(i):
            return s[i] * s[i]
        """)
    )
    spec: Any = importlib.util.spec_from_file_location("forces", path)
    forces: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(forces)
    forces.s = s

    @lang.kernel
    def step():
        for i in s:
            s[i] = forces.squared(i)

    return step


def stored_by_a_function(lang, s):
    @lang.func
    def put(i, v):
        s[i] = v

    @lang.kernel
    def step():
        for i in range(N):
            put(i, s[i] * s[i])

    return step


WAYS = [
    by_its_global_name,
    by_a_function_of_a_function,
    by_a_method,
    by_a_method_of_a_part,
    by_an_object_that_is_an_argument,
    by_a_function_of_another_module,
    stored_by_a_function,
]


def squaring(lang, way, folder, times=1, **how):
    """Build kernels that compute x^2 or more, with the square in place."""
    x, s, y = (graded(lang) for _ in range(3))

    @lang.kernel
    def load():
        for i in x:
            s[i] = x[i]

    @lang.kernel
    def store():
        for i in y:
            y[i] = s[i]

    step = way(lang, s, folder) if way is by_a_function_of_another_module else way(lang, s)
    layer = ts.EmptyTin(**how).register_input_field(x).register_output_field(y).register_kernel(load)
    for count in range(times):
        layer.register_kernel(step, kernel_name=f"step{count}")
    return layer.register_kernel(store).finish()


@pytest.mark.compiled_engine
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_state_that_a_function_changes_in_place_is_refused_by_the_engine(lang64, way, tmp_path):
    layer = squaring(lang64, way, tmp_path, adjoint="engine")
    words = r"(?s)overwrites a value of `[\w.]*s` that its gradient needs.*read.*:\d+.*overwritten.*`adjoint='engine'`"
    with pytest.raises(ts.GradientError, match=words) as refused:
        layer(rand(N).requires_grad_())
    if way is by_a_function_of_another_module:
        assert "forces.py:6" in str(refused.value)
    cases.assert_close(layer(2 * torch.ones(N)), 4 * torch.ones(N, dtype=torch.float64))  # values need no gradient


@pytest.mark.thinned(4)
@pytest.mark.parametrize("on_tensors", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_generated_gradient_is_right(lang64, way, tmp_path, on_tensors):
    layer = squaring(lang64, way, tmp_path, times=2, on_tensors=on_tensors)
    x, c = rand(N).requires_grad_(), rand(N)
    y = layer(x)
    cases.assert_close(y, x**4)
    cases.assert_close(torch.autograd.grad(y, x, c), (4 * x**3 * c,))


@pytest.mark.compiled_engine
def test_a_tin_refuses_the_engines_gradient_too(lang64):
    @lang64.data_oriented
    class Sim:
        def __init__(self):
            self._x, self.s, self._y = (graded(lang64) for _ in range(3))

        @ts.input
        def x(self):
            return self._x

        @ts.output
        def y(self):
            return self._y

        @lang64.func
        def squared(self, i):
            return self.s[i] * self.s[i]

        @ts.kernel
        @lang64.kernel
        def step(self):
            for i in self._x:
                self.s[i] = self._x[i]
            for i in self._x:
                self.s[i] = self.squared(i)
            for i in self._x:
                self._y[i] = self.s[i]

    x, c = rand(N).requires_grad_(), rand(N)
    with pytest.raises(ts.GradientError, match=r"overwrites a value of `self.s`"):
        ts.Tin(Sim(), adjoint="engine")(x)
    cases.assert_close(torch.autograd.grad(ts.Tin(Sim())(x), x, c), (2 * x * c,))
    cases.assert_close(torch.autograd.grad(ts.Tin(Sim(), on_tensors=True)(x), x, c), (2 * x * c,))


def test_a_loop_that_no_engine_reverses(lang64):
    """A function hands the value on, from one iteration of the serial outermost loop to the next."""
    x, s, y = graded(lang64), graded(lang64, (N, N)), graded(lang64)

    @lang64.func
    def before(t, i):
        return s[t, i]

    @lang64.kernel
    def run():
        for i in x:
            s[0, i] = x[i]
        lang64.loop_config(serialize=True)
        for t in range(N - 1):
            for i in range(N):
                s[t + 1, i] = before(t, i) * 1.5
        for i in y:
            y[i] = s[N - 1, i]

    def make(adjoint):
        layer = ts.EmptyTin(adjoint=adjoint).register_input_field(x).register_output_field(y)
        return layer.register_kernel(run).finish()

    given, c = rand(N).requires_grad_(), rand(N)
    with pytest.raises(ts.GradientError, match=r"(?s)cannot reverse the loop.*`s`.*used.*changed"):
        make("engine")(given)
    cases.assert_close(torch.autograd.grad(make("auto")(given), given, c), (1.5 ** (N - 1) * c,))


@pytest.mark.compiled_engine
@pytest.mark.each_engine
def test_lint_findings_about_functions_are_reported(lang, engine):
    """TS404: Taichi keeps the last iteration's value of `exp`."""
    if engine != "taichi":
        pytest.skip("Quadrants is right here")
    x, y = (lang.field(lang.f32, shape=2, needs_grad=True) for _ in range(2))

    @lang.func
    def nothing(i):
        return x[i] * 0.0

    @lang.kernel
    def run():
        for i in x:
            total = nothing(i)
            z = x[i]
            for j in range(3):
                total += lang.exp(z * (j + 1))
                z = z * 0.5
            y[i] = total

    layer = ts.EmptyTin(adjoint="engine").register_input_field(x).register_output_field(y).register_kernel(run).finish()
    with pytest.raises(ts.GradientError, match="(?s)TS404.*`adjoint='engine'`"):
        layer(torch.rand(2, requires_grad=True))


def test_functions_that_the_engine_gets_right_still_run(lang64):
    """A state of its own for each step, read by a function: nothing is lost, and nothing is said."""
    x, s, y, w = graded(lang64), graded(lang64), graded(lang64), graded(lang64)
    w.fill(3.0)

    @lang64.func
    def weighted(i):
        return w[i] * s[i] * s[i]

    @lang64.kernel
    def first():
        for i in x:
            s[i] = x[i] * 2

    @lang64.kernel
    def second():
        for i in y:
            y[i] = weighted(i)

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_weight_field(w, name="w")
    layer.register_kernel(first).register_kernel(second).finish()
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, 12 * given * given)
    weight: Any = layer.w
    cases.assert_close(torch.autograd.grad(result, (given, weight), c), (24 * given * c, 4 * given * given * c))


def test_captured_numbers_of_a_function_are_read_again(lang64):
    """What a function reads off its object, and off its module, is what it is at the call."""
    x, y = graded(lang64), graded(lang64)
    held = [2.0]

    @lang64.data_oriented
    class Sim:
        def __init__(self):
            self.scale = 2.0

        @lang64.func
        def scaled(self, i):
            return x[i] * self.scale * held[0]

        @lang64.kernel
        def run(self):
            for i in y:
                y[i] = self.scaled(i)

    sim = Sim()
    layer = ts.EmptyTin(on_tensors=True).register_input_field(x).register_output_field(y)
    layer.register_kernel(sim.run).finish()
    given = rand(N)
    cases.assert_close(layer(given), 4 * given)
    sim.scale = 3.0
    cases.assert_close(layer(given), 6 * given)
    held[0] = 5.0
    cases.assert_close(layer(given), 15 * given)


def test_two_objects_of_a_class_keep_to_their_own_fields(lang64):
    @lang64.data_oriented
    class Part:
        def __init__(self):
            self.s = graded(lang64)

        @lang64.func
        def value(self, i):
            return self.s[i]

    a, b, y = Part(), Part(), graded(lang64)

    @lang64.kernel
    def run():
        for i in y:
            y[i] = a.value(i) * b.value(i) + b.value(i)

    layer = ts.EmptyTin(on_tensors=True).register_input_field(a.s).register_input_field(b.s).register_output_field(y)
    layer.register_kernel(run).finish()
    p, q, c = rand(N).requires_grad_(), rand(N).requires_grad_(), rand(N)
    result = layer(p, q)
    cases.assert_close(result, p * q + q)
    cases.assert_close(torch.autograd.grad(result, (p, q), c), (q * c, (p + 1) * c))


def test_a_batch_runs_through_functions(lang64):
    x, y = graded(lang64), graded(lang64)

    @lang64.func
    def before(i):
        return x[(i + N - 1) % N]

    @lang64.kernel
    def run():
        for i in y:
            y[i] = before(i) * x[i]

    layer = ts.EmptyTin().register_input_field(x, batched=True).register_output_field(y).register_kernel(run).finish()
    given, c = rand(4, N).requires_grad_(), rand(4, N)
    twin = given.roll(1, -1) * given
    result = layer(given)
    cases.assert_close(result, twin)
    cases.assert_close(torch.autograd.grad(result, given, c), torch.autograd.grad(twin, given, c))


def test_a_kernel_local_does_not_hide_the_field_of_a_function(lang64):
    """The function's field is called as a variable of the kernel is."""
    x, y = graded(lang64), graded(lang64)

    def made():
        total = x

        @lang64.func
        def doubled(i):
            return total[i] * 2

        return doubled

    doubled = made()

    @lang64.kernel
    def run():
        for i in y:
            total = 0.0
            for _ in range(2):
                total += doubled(i)
            y[i] = total

    layer = ts.EmptyTin(on_tensors=True).register_input_field(x).register_output_field(y).register_kernel(run).finish()
    given = rand(N)
    cases.assert_close(layer(given), 4 * given)


def in_a_list(lang, s, y):
    held = [s]

    @lang.func
    def squared(i):
        product = 1.0
        for k in lang.static(range(2)):
            product *= held[k - k][i]
        return product

    @lang.kernel
    def run():
        for i in y:
            y[i] = squared(i)

    return run, r"`squared` of EmptyTin uses the field `held\[0\]`"


def in_a_real_function(lang: Any, s, y):
    @lang.real_func
    def squared(i: lang.i32) -> lang.f64:
        return s[i] * s[i]

    @lang.kernel
    def run():
        for i in y:
            y[i] = squared(i)

    return run, "`squared` of EmptyTin uses the field `s`"


@pytest.mark.compiled_engine
@pytest.mark.parametrize("reach", [in_a_list, in_a_real_function])
def test_code_that_cannot_be_analyzed_is_reported(lang64, reach):
    s, y = graded(lang64), graded(lang64)
    run, words = reach(lang64, s, y)
    layer = ts.EmptyTin(adjoint="engine").register_input_field(s).register_output_field(y).register_kernel(run).finish()
    layer(rand(N))  # without a gradient nothing is at stake
    with pytest.warns(UserWarning, match=rf"(?s)EmptyTin is the engine's own.*not checked.*{words}.*{__name__}.py:\d+"):
        layer(rand(N).requires_grad_())
    layer(rand(N).requires_grad_())  # said once
    assert f"not checked: {words}".replace("\\", "")[:40] in layer.explain("all")
    tensors = ts.EmptyTin(on_tensors=True).register_input_field(s).register_output_field(y).register_kernel(run)
    with pytest.raises(ts.KernelError, match=rf"(?s){words} in a way.*{__name__}.py:\d+"):
        tensors.finish()
