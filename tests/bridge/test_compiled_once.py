"""Generated kernels are compiled once for each text: by ops of one kernel, batches and derivatives."""

import ast
import gc
import inspect
import linecache
import weakref

import pytest
import torch

import tinsmith as ts
from tinsmith.codegen import build
from tinsmith.engines import get
from tinsmith.engines._common import _SHARED


@pytest.fixture
def compiled(engine, lang, monkeypatch):
    """Return a list of the names of kernels that the engine compiles from now on."""
    names, real = [], get(engine)._compile_alone

    def compile_noted(function, *given):
        names.append(function.__name__)
        return real(function, *given)

    # Tests that ran before may have compiled the same text.
    monkeypatch.delitem(vars(get(engine).runtime()), _SHARED, raising=False)
    monkeypatch.setattr(get(engine), "_compile_alone", compile_noted)
    return names


def cubes(lang, spec="x[n] -> y[n]"):
    @lang.kernel
    def cube(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    return ts.op(spec)(cube)


def compute_gradient(op, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(op(leaf).sum(), leaf)[0]


@pytest.mark.compiled_engine
def test_two_ops_of_one_text_share_their_kernels(lang, compiled):
    x = torch.rand(5)
    first, second = cubes(lang), cubes(lang)
    torch.testing.assert_close(compute_gradient(first, x), 3 * x * x)
    kernels = list(compiled)
    assert {"cube", "cube_adjoint_0"} >= {*kernels}
    torch.testing.assert_close(compute_gradient(second, x), 3 * x * x)
    assert compiled == kernels
    compute_gradient(cubes(lang), x.double())
    assert compiled.count("cube_adjoint_0") == 2


def test_kernels_outlive_their_op_and_nothing_else_does(lang, compiled):
    """The engine cannot free them. The op goes at once: no reference cycle waits for Python's garbage collector."""
    x = torch.rand(5)
    op = cubes(lang)
    compute_gradient(op, x)
    core = weakref.ref(op._core)
    gc.collect()
    gc.disable()
    try:
        del op
        assert core() is None
    finally:
        gc.enable()
    kernels = list(compiled)
    compute_gradient(cubes(lang), x)
    assert compiled == kernels


class Held:
    """An object in the closure of a kernel."""


def make_power(lang, factor, held):
    @lang.func
    def scaled(value):
        return factor * value

    @lang.kernel
    def power(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if lang.static(held is not None):
                y[i] = scaled(x[i]) * x[i]

    return ts.op("x[n] -> y[n]")(power)


def make_total(lang, factor, held):
    """Make an op whose kernel engines compile from its source, since it has no vectorized form."""

    @lang.kernel
    def first(x: lang.types.ndarray(), t: lang.types.ndarray()):
        for i in range(x.shape[0]):
            s = x[i] * factor
            for j in range(i):
                if x[j] > s:
                    s = x[j]
            t[i] = s * s

    @lang.kernel
    def second(t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(t.shape[0]):
            y[i] = t[i] * factor
            if lang.static(held is None):
                y[i] += 1.0

    return ts.chain("x[n] -> y[n]", [first, second], scratch="t[n]")


@pytest.mark.parametrize("make", [make_power, make_total])
def test_making_the_same_op_in_a_loop_leaks_nothing(lang, engine, compiled, make):
    """Neither compiled kernels, nor operators of torch, nor lines of generated text, nor objects in closures."""
    x = torch.rand(5)

    def run():
        held = Held()
        compute_gradient(make(lang, 2.0, held), x)
        return weakref.ref(held)

    def count():
        gc.collect()
        synthetic = sum(name.startswith("<tinsmith") for name in linecache.cache)
        living = sum(kernel.func is not None for kernel in get(engine).runtime().kernels if is_alive(kernel))
        return living, synthetic, len(dir(torch.ops.tinsmith))

    # Caches may drop kernels of earlier tests while ops are made, which would hide a leak or be taken for one.
    ts.clear_caches()
    run()
    kernels, before = list(compiled), count()
    held = [run() for _ in range(3)]
    assert (compiled, count()) == (kernels, before)
    assert [one() for one in held] == [None] * 3


def test_lines_stay_while_a_function_of_them_exists():
    """They were dropped with the function that was made last, and Taichi read the module's lines in their place."""
    tree = ast.parse("def double(x):\n    return 2 * x").body[0]
    (first, text), (last, _) = build(tree, {}, "double"), build(tree, {}, "double")
    path = first.__code__.co_filename
    assert last.__code__.co_filename == path
    del last
    gc.collect()
    assert "".join(linecache.getlines(path)) == inspect.getsource(first) == text
    del first
    gc.collect()
    assert path not in linecache.cache


def test_different_ops_do_not_keep_the_objects_in_their_closures(lang):
    """Torch keeps the operator of each, and the engine the compiled kernels."""
    x, held = torch.rand(5), []
    for make in (make_power, make_total):
        for factor in (1.5, 2.5):
            one = Held()
            compute_gradient(make(lang, factor, one), x)
            held.append(weakref.ref(one))
    del one
    gc.collect()
    assert [one() for one in held] == [None] * 4


def make_scaled(lang, number):
    """Make an op that scales by a number from a closure and has a vectorized form."""

    @lang.kernel
    def scaled(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * number

    return ts.op("x[n] -> y[n]")(scaled), lambda x: x * x * number


def make_chosen(lang, number):
    """Make an op with a number that decides a branch, and one that Python computes from it; not vectorized."""
    half = number / 2

    @lang.kernel
    def chosen(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = x[i]
            while s > number:
                s -= half
            y[i] = s * x[i] / number

    def expect(x):
        s = x.clone()
        while (s > number).any():
            s = torch.where(s > number, s - half, s)
        return s * x / number

    return ts.op("x[n] -> y[n]")(chosen), expect


def make_shifted(lang, number):
    """Make an op with an integer in an index and in arithmetic."""
    step = int(4 * number)

    @lang.kernel
    def shifted(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[(i + step) % x.shape[0]] ** 2 * step

    return ts.op("x[n] -> y[n]")(shifted), lambda x: x.roll(-step) ** 2 * step


def make_method(lang, number):
    """Make an op of a method that uses a vector and a number of its object, and the closure of a function."""

    @lang.func
    def shift(value):
        return value + number

    @lang.data_oriented
    class Model:
        def __init__(self):
            self.rate, self.axis = number, lang.Vector([number, 1.0])

        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = shift(self.rate * x[i]) * self.axis.dot(lang.Vector([x[i], 3.0]))

    return ts.op("x[n] -> y[n]")(Model().run), lambda x: (number * x + number) * (number * x + 3)


def make_by_hand(lang, number):
    """Make an op with a hand-written gradient kernel, and a power whose exponent differs each time."""

    @lang.kernel
    def back(x: lang.types.ndarray(), grad_x: lang.types.ndarray(), grad_y: lang.types.ndarray()):
        for i in x:
            grad_x[i] = number * x[i] ** (number - 1) * grad_y[i]

    @lang.kernel
    def power(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] ** number

    return ts.op("x[n] -> y[n]", backward=back)(power), lambda x: x**number


@pytest.mark.compiled_engine
@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (make_scaled, torch.float32),
        (make_chosen, torch.float64),
        (make_shifted, torch.float64),
        (make_method, torch.float64),
        (make_by_hand, torch.float32),
    ],
)
def test_ops_that_differ_in_numbers_share_their_kernels(lang, compiled, make, dtype):
    """From the fifth on, so that a program that makes an op in every step does not grow without end."""
    x = torch.rand(5, dtype=dtype) + 0.5
    counts = []
    for number in (0.75, 1.25, 2.25, 3.125, 4.25, 2.7, 3.3, 0.75):
        op, expect = make(lang, number)
        leaf = x.clone().requires_grad_()
        wanted = torch.autograd.grad(expect(leaf).pow(2).sum(), leaf)[0]
        torch.testing.assert_close(op(x), expect(x))
        torch.testing.assert_close(compute_gradient(lambda x, op=op: op(x).pow(2), x), wanted)
        rows = torch.stack([x, 2 * x])
        torch.testing.assert_close(torch.func.vmap(op)(rows), torch.stack([expect(row) for row in rows]))
        counts.append(len(compiled))
    assert counts[3] < counts[4]
    assert counts[5] == counts[-1]


def test_special_numbers_may_become_arguments_of_a_shared_kernel(lang):
    """Zeros of both signs, infinities, and numbers that no float has, after four others."""
    x = torch.tensor([-1.5, 0.0, 2.0])
    for number in (
        2.5,
        3.5,
        4.5,
        5.5,
        0.1,
        0.0,
        -0.0,
        float("inf"),
        -float("inf"),
        float("nan"),
        1e300,
        1.0,
        -1.0,
        1e-46,
    ):
        op, expect = make_scaled(lang, number)
        torch.testing.assert_close(op(x), expect(x), equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.compiled_engine
def test_a_number_that_changes_again_and_again_compiles_a_few_kernels(lang, compiled):
    class Settings:
        rate = 1.0

    @lang.kernel
    def scaled(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * Settings.rate

    op, x = ts.op("x[n] -> y[n]")(scaled), torch.rand(5)
    counts = []
    for place in range(8):
        Settings.rate = 1.1 + place
        torch.testing.assert_close(compute_gradient(op, x), 2 * x * Settings.rate)
        counts.append(len(compiled))
    assert counts[3] < counts[5] == counts[-1]


def is_alive(kernel):
    return getattr(kernel, "is_alive", True)


def test_ops_that_differ_in_what_a_function_of_theirs_captured_share_no_kernel(lang):
    x = torch.rand(5)
    held = Held()
    for factor in (2.0, 3.0, 2.0):
        torch.testing.assert_close(compute_gradient(make_power(lang, factor, held), x), 2 * factor * x)
        torch.testing.assert_close(make_total(lang, factor, held)(x[:1]), factor**3 * x[:1] ** 2)


def test_a_kernel_of_a_dropped_op_works_after_a_restart(lang, engine):
    """The engine's list of kernels, which forgets what was compiled when it starts again, holds them weakly."""

    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    op = ts.op("x[n] -> y[n]")(double)
    x, y = torch.rand(3), torch.zeros(3)
    op(x)
    double(x, y)
    del op
    gc.collect()
    ts.init("cpu", engine)
    double(x, y)
    torch.testing.assert_close(y, 2 * x)
    torch.testing.assert_close(ts.op("x[n] -> y[n]")(double)(x), 2 * x)


@pytest.mark.compiled_engine
def test_the_engine_s_options_count(lang, compiled, monkeypatch):
    x = torch.rand(5)
    first = cubes(lang)
    compute_gradient(first, x)
    compiled.clear()
    config = lang.lang.impl.current_cfg()
    config.fast_math, before = not config.fast_math, config.fast_math
    try:
        compute_gradient(cubes(lang), x)
    finally:
        config.fast_math = before
    assert compiled.count("cube_adjoint_0") == 1


@pytest.mark.compiled_engine
def test_a_batch_that_runs_sample_by_sample_has_the_gradient_of_a_single_call(lang, compiled):
    """A local of the top level that a loop adds to cannot be batched in one launch.

    Samples may be unaligned, so they run a variant without machine vectors where there is another. Neighboring elements
    that are read by different loops leave none.
    """

    @ts.op("x[n, 2] -> y[n]")
    @lang.kernel
    def normalize(x: lang.types.ndarray(), y: lang.types.ndarray()):
        s = 0.0
        for i in y:
            s += x[i, 0]
        for i in y:
            y[i] = x[i, 1] / s

    x = torch.rand(5, 2)
    compute_gradient(normalize, x)
    single = [name for name in compiled if "adjoint" in name]
    assert single
    rows = torch.rand(3, 5, 2)
    gradients = torch.func.vmap(torch.func.grad(lambda one: normalize(one).pow(2).sum()))(rows)
    leaf = rows.clone().requires_grad_()
    wanted = torch.autograd.grad((leaf[..., 1] / leaf[..., 0].sum(1, keepdim=True)).pow(2).sum(), leaf)[0]
    torch.testing.assert_close(gradients, wanted)
    assert [name for name in compiled if "adjoint" in name] == single
