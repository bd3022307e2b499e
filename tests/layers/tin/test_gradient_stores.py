"""Kernels that clear gradients themselves, as programs with a tape do: a layer's gradients are right all the same."""

import pytest
import torch

import cases
import tinsmith as ts

N, STEPS = 4, 3
MODES = ["fields", "tensors", "batched"]


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def graded(lang, shape=N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


def make_layer(mode, inputs, output, launches):
    layer = ts.EmptyTin(on_tensors=mode != "fields").register_output_field(output, name="end")
    for number, field in enumerate(inputs):
        layer.register_input_field(field, name=f"input_{number}", batched=mode == "batched")
    for number, (kernel, *arguments) in enumerate(launches):
        layer.register_kernel(kernel, *arguments, kernel_name=f"launch {number}")
    return layer.finish()


def assert_agree(mode, layer, twin, *shapes):
    lead = (2,) if mode == "batched" else ()
    for _ in range(2):
        given = [rand(*lead, *shape).requires_grad_() for shape in shapes]
        ours, theirs = layer(*given), twin(*given)
        cases.assert_close(ours, theirs)
        seeds = torch.randn_like(theirs)
        mine = torch.autograd.grad(ours, given, seeds)
        cases.assert_close(mine, torch.autograd.grad(theirs, given, seeds))


def simulation(lang):
    """Build springs with a rest length and a history of T rows, and kernels that step and read it."""
    rest, start, end = graded(lang), graded(lang), graded(lang)
    x = graded(lang, (STEPS + 1, N))

    @lang.kernel
    def begin():
        for i in start:
            x[0, i] = start[i]

    @lang.kernel
    def step(t: lang.i32):
        for i in range(N):
            x[t + 1, i] = x[t, i] + 0.1 * (rest[i] - x[t, i]) ** 3

    @lang.kernel
    def finish():
        for i in end:
            end[i] = x[STEPS, i] ** 2

    return rest, start, end, x, [(begin,), *((step, t) for t in range(STEPS)), (finish,)]


def simulated(rest, start):
    x = start
    for _ in range(STEPS):
        x = x + 0.1 * (rest - x) ** 3
    return x**2


@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_that_only_clears_gradients(lang64, mode):
    rest, start, end, x, launches = simulation(lang64)

    @lang64.kernel
    def clear():
        for i in rest:
            rest.grad[i] = 0.0
            start.grad[i] = 0.0
        for t, i in x.grad:
            x.grad[t, i] = 0.0

    layer = make_layer(mode, [rest, start], end, [(clear,), *launches])
    assert_agree(mode, layer, simulated, (N,), (N,))


@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_that_clears_gradients_and_values(lang64, mode):
    rest, start, end, x, launches = simulation(lang64)

    @lang64.kernel
    def clear():
        for index in lang64.grouped(x.grad):
            x[index] = 0.0
            x.grad[index] = 0.0
        for i in range(N):
            rest.grad[i] = 0.0
            start.grad[i] *= 0.0

    layer = make_layer(mode, [rest, start], end, [(clear,), *launches])
    assert_agree(mode, layer, simulated, (N,), (N,))


def clear_members(lang, p):
    @lang.kernel
    def clear():
        for i in p:
            p.grad[i].a = 0.0
            p.grad[i].v = lang.Vector([0.0, 0.0])

    return clear


def clear_members_by_methods(lang, p):
    @lang.kernel
    def clear():
        for i in lang.grouped(p.grad):
            p[i].a = 0.0
            p.grad[i].v.fill(0.0)
            p.a.grad[i] = 0.0

    return clear


def clear_entries_of_members(lang, p):
    @lang.kernel
    def clear():
        for i in p:
            p[i].v *= 0.0
            p.v.grad[i][0] = 0.0
            p.v.grad[i].y *= 0.0
            p.grad[0].a = 0.0
            p.a.grad[0] = 0.0

    return clear


@pytest.mark.compiled_engine
@pytest.mark.parametrize("clears", [clear_members, clear_members_by_methods, clear_entries_of_members])
def test_gradients_of_a_field_of_structs(lang64, clears):
    p = lang64.Struct.field({"a": lang64.f64, "v": lang64.types.vector(2, lang64.f64)}, shape=N, needs_grad=True)
    x, end = graded(lang64), graded(lang64)

    @lang64.kernel
    def step():
        for i in x:
            p[i].a = x[i] ** 2
            p[i].v = lang64.Vector([x[i], p[i].a])
            end[i] = p[i].a * p[i].v.sum()

    layer = make_layer("fields", [x], end, [(clears(lang64, p),), (step,)])
    assert_agree("fields", layer, lambda x: x**2 * (x + x**2), (N,))


@pytest.mark.parametrize("mode", MODES)
def test_methods_with_vectors(lang64, mode):
    @lang64.data_oriented
    class Springs:
        def __init__(self):
            self.x, self.f = (lang64.Vector.field(2, lang64.f64, shape=N, needs_grad=True) for _ in range(2))
            self.e = graded(lang64)

        @lang64.kernel
        def clear(self):
            for i in self.x:
                self.f[i] = [0.0, 0.0]
                self.x.grad[i] = [0.0, 0.0]
                self.f.grad[i].x = 0.0
                self.f.grad[i][1] = 0.0

        @lang64.kernel
        def force(self):
            for i in range(N - 1):
                pull = self.x[i + 1] - self.x[i]
                self.f[i] += pull
                self.f[i + 1] -= pull

        @lang64.kernel
        def energy(self):
            for i in self.e:
                self.e[i] = self.f[i].norm_sqr()

    def twin(x):
        pull = torch.nn.functional.pad(x.diff(dim=-2), (0, 0, 1, 1))
        return pull.diff(dim=-2).square().sum(-1)

    springs = Springs()
    layer = make_layer(mode, [springs.x], springs.e, [(springs.clear,), (springs.force,), (springs.energy,)])
    assert_agree(mode, layer, twin, (N, 2))


@pytest.mark.parametrize("mode", MODES)
def test_fields_and_gradients_as_arguments(lang64, mode):
    rest, start, end, x, launches = simulation(lang64)

    @lang64.kernel
    def clear(of: lang64.template()):
        for i in of:
            of.grad[i] = 0.0

    @lang64.kernel
    def zero(what: lang64.template()):
        for i in what:
            what[i] = 0.0

    layer = make_layer(mode, [rest, start], end, [(clear, rest), (zero, start.grad), *launches])
    assert_agree(mode, layer, simulated, (N,), (N,))


def test_on_fields_the_gradients_are_cleared(lang64):
    rest, start, end, _, launches = simulation(lang64)

    @lang64.kernel
    def clear():
        for i in rest:
            rest.grad[i] = 0.0

    layer = make_layer("fields", [rest, start], end, [(clear,), *launches])
    rest.grad.fill(3.0)
    layer(rand(N), rand(N))
    assert not rest.grad.to_numpy().any()


def descending(lang, rest):
    @lang.kernel
    def descend():
        for i in rest:
            rest[i] -= 0.1 * rest.grad[i]

    return (descend,)


def clearing_in_a_function(lang, rest):
    @lang.func
    def clear_one(i):
        rest.grad[i] = 0.0

    @lang.kernel
    def clear():
        for i in range(N):
            clear_one(i)
            rest[i] = rest[i]

    return (clear,)


def scaling(lang, rest):
    @lang.kernel
    def scale(what: lang.template()):
        for i in rest:
            rest[i] = rest[i] * (1.0 + what[i])

    return (scale, rest.grad)


@pytest.mark.parametrize("make", [descending, clearing_in_a_function, scaling])
def test_other_uses_of_gradients_are_refused(lang64, make):
    rest, start, end, _, launches = simulation(lang64)
    launches = [make(lang64, rest), *launches]
    words = (
        r"(?s)kernel `\w+` of EmptyTin uses the gradient `[\w.]+`.*test_gradient_stores\.py:\d+.*Leave the kernel out"
    )
    layer = make_layer("fields", [rest, start], end, launches)
    layer(rand(N), rand(N))
    with pytest.raises(ts.GradientError, match=words):
        layer(rand(N), rand(N).requires_grad_())
    with pytest.raises(ts.GradientError, match=words):
        make_layer("tensors", [rest, start], end, launches)


def clearing(lang):
    """Build a layer whose first kernel clears gradients, by a method and by stores."""
    x, y = graded(lang), graded(lang)

    @lang.kernel
    def clear():
        x.grad.fill(0.0)
        for i in y:
            y.grad[i] = 0.0

    @lang.kernel
    def square():
        for i in x:
            y[i] = x[i] ** 2

    return make_layer("fields", [x], y, [(clear,), (square,)])


@pytest.mark.each_engine
def test_kernels_that_clear_gradients_are_kept_on_disk(lang64, disk_cache):
    for _ in range(2):
        assert_agree("fields", clearing(lang64), lambda x: x**2, (N,))
