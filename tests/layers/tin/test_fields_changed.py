"""Fields that kernels change in place: the gradient is right, or refused with the line that spoils it."""

import pytest
import torch

import cases
import tinsmith as ts

N = 5


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def graded(lang, shape=N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


def layer_on(x, y, *kernels, **how):
    layer = ts.EmptyTin(**how).register_input_field(x).register_output_field(y)
    for kernel in kernels:
        layer.register_kernel(kernel)
    return layer.finish()


# Inputs that kernels change ---------------------------------------------------------------------
def squared_in_place(lang):
    x, y = graded(lang), graded(lang)

    @lang.kernel
    def kernel():
        for i in x:
            x[i] = x[i] * x[i]
            y[i] = x[i] * 3

    return x, y, [kernel], lambda x: 3 * x * x


def squared_in_an_input_that_is_the_output(lang):
    x = graded(lang)

    @lang.kernel
    def kernel():
        for i in x:
            x[i] = x[i] * x[i]

    return x, x, [kernel], lambda x: x * x


def overwritten_by_a_later_kernel(lang):
    x, y = graded(lang), graded(lang)

    @lang.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    @lang.kernel
    def overwrite():
        for i in x:
            x[i] = 0.5

    return x, y, [square, overwrite], lambda x: x * x


@pytest.mark.compiled_engine
@pytest.mark.parametrize(
    "make", [squared_in_place, squared_in_an_input_that_is_the_output, overwritten_by_a_later_kernel]
)
def test_an_input_that_loses_what_its_gradient_needs(lang64, make):
    """The generated gradient takes the values that the forward pass had; the engine's own is refused."""
    x, y, kernels, twin = make(lang64)
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer_on(x, y, *kernels)(given)
    cases.assert_close(result, twin(given))
    cases.assert_close(torch.autograd.grad(result, given, c), torch.autograd.grad(twin(given), given, c))
    layer, given = layer_on(x, y, *kernels, adjoint="engine"), rand(N)
    cases.assert_close(layer(given), twin(given))
    with pytest.raises(ts.GradientError, match="(overwrites|changes) a .* that its gradient needs"):
        layer(given.requires_grad_())


def test_an_input_may_be_the_output(lang64):
    x = graded(lang64)

    @lang64.kernel
    def doubled():
        for i in x:
            x[i] = 2 * x[i]

    layer = layer_on(x, x, doubled)
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, 2 * given)
    cases.assert_close(torch.autograd.grad(result, given, c), (2 * c,))


def test_an_input_may_hold_the_steps_that_follow_it(lang64):
    x, y = graded(lang64, (4, N)), graded(lang64)

    @lang64.kernel
    def steps():
        for i in range(N):
            for t in range(3):
                x[t + 1, i] = 2 * lang64.sin(x[t, i])

    @lang64.kernel
    def last():
        for i in y:
            y[i] = x[3, i]

    def twin(x):
        state = x[0]
        for _ in range(3):
            state = 2 * torch.sin(state)
        return state

    layer = layer_on(x, y, steps, last)
    given, c = rand(4, N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, twin(given))
    cases.assert_close(torch.autograd.grad(result, given, c), torch.autograd.grad(twin(given), given, c))


def test_an_output_may_be_registered_as_internal_too(lang64):
    x, y = graded(lang64), graded(lang64)

    @lang64.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_internal_field(y)
    layer.register_kernel(square).finish()
    given, c = rand(N).requires_grad_(), rand(N)
    cases.assert_close(torch.autograd.grad(layer(given), given, c), (2 * given * c,))


# Counters ---------------------------------------------------------------------------------------
def counted(lang, x, y, c):
    @lang.kernel
    def kernel():
        for i in x:
            c[i] += 1
            y[i] = x[i] * c[i]

    return kernel


def counted_by_a_plain_store(lang, x, y, c):
    @lang.kernel
    def kernel():
        for i in x:
            c[i] = c[i] + 1
            y[i] = x[i] * c[i]

    return kernel


@pytest.mark.compiled_engine
@pytest.mark.parametrize("dtype", ["i32", "f64"])
@pytest.mark.parametrize("make", [counted, counted_by_a_plain_store])
def test_a_count_that_its_own_loop_uses(lang64, make, dtype):
    """The engine's reverse of the loop would count once more before it uses the count."""
    x, y, c = graded(lang64), graded(lang64), lang64.field(getattr(lang64, dtype), shape=N)
    given, seeds = rand(N).requires_grad_(), rand(N)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y)
    layer.register_internal_field(c, name="count", needs_grad=False, clear=False)
    result = layer.register_kernel(make(lang64, x, y, c)).finish()(given)
    cases.assert_close(result, given)
    cases.assert_close(torch.autograd.grad(result, given, seeds), (seeds,))
    c.fill(0)
    layer = ts.EmptyTin(adjoint="engine").register_input_field(x).register_output_field(y)
    layer.register_internal_field(c, name="count", needs_grad=False)
    layer.register_kernel(make(lang64, x, y, c)).finish()
    layer(rand(N))
    given = rand(N)
    cases.assert_close(layer(given), 2 * given)
    with pytest.raises(ts.GradientError, match="overwrites a value of `count` that its gradient needs"):
        layer(given.requires_grad_())


def counted_in_a_loop_before(lang, x, y, c):
    @lang.kernel
    def kernel():
        for i in x:
            c[i] += 1
        for i in x:
            y[i] = x[i] * c[i]

    return [kernel]


def counted_in_a_kernel_before(lang, x, y, c):
    @lang.kernel
    def count():
        for i in x:
            c[i] += 1

    @lang.kernel
    def use():
        for i in x:
            y[i] = x[i] * c[i]

    return [count, use]


def counted_from_zero(lang, x, y, c):
    @lang.kernel
    def kernel():
        for i in x:
            c[i] = c[i] * 0
        for i in x:
            c[i] = 0
            for _ in range(3):
                c[i] += 1
            y[i] = x[i] * c[i]

    return [kernel]


@pytest.mark.parametrize(
    ("make", "counts"),
    [(counted_in_a_loop_before, (1, 2, 3)), (counted_in_a_kernel_before, (1, 2, 3)), (counted_from_zero, (3, 3, 3))],
)
def test_a_count_is_what_it_was_in_the_forward_pass(lang64, make, counts):
    x, y, c = graded(lang64), graded(lang64), lang64.field(lang64.i32, shape=N)
    layer = layer_on(x, y, *make(lang64, x, y, c))
    inputs = [rand(N).requires_grad_() for _ in counts]
    results = [layer(one) for one in inputs]
    for one, result, count in zip(inputs, results, counts, strict=True):
        cases.assert_close(result, one * count)
        given = rand(N)
        cases.assert_close(torch.autograd.grad(result, one, given), (given * count,))


# One field, two roles ---------------------------------------------------------------------------
def twice_an_input(layer, x, y):
    layer.register_input_field(x, name="a").register_input_field(x, name="b").register_output_field(y)


def an_input_and_a_weight(layer, x, y):
    layer.register_input_field(x, name="a").register_weight_field(x, name="b").register_output_field(y)


def twice_an_output(layer, x, y):
    layer.register_input_field(x).register_output_field(y, name="a").register_output_field(y, name="b")


@pytest.mark.parametrize("register", [twice_an_input, an_input_and_a_weight, twice_an_output])
def test_one_field_cannot_be_registered_twice(lang64, register):
    x, y = graded(lang64), graded(lang64)

    @lang64.kernel
    def doubled():
        for i in x:
            y[i] = 2 * x[i]

    layer = ts.EmptyTin().register_kernel(doubled)
    register(layer, x, y)
    with pytest.raises(ts.RegistrationError, match="`a` and `b` of EmptyTin are the same field"):
        layer.finish()


# Sparse fields ----------------------------------------------------------------------------------
@pytest.mark.compiled_engine
def test_a_backward_pass_activates_nothing(lang64):
    """What a loop over a sparse field visits is part of the value: in reverse, and in the next call."""
    x, y, w = graded(lang64), graded(lang64, ()), graded(lang64, ())
    grid = lang64.field(lang64.f64, needs_grad=True)
    lang64.root.pointer(lang64.i, 16).place(grid, grid.grad)

    @lang64.kernel
    def activate():
        for i in x:
            grid[2 * i] = x[i] * x[i]

    @lang64.kernel
    def gather():
        for i in grid:
            y[None] += (w[None] + grid[i]) ** 3

    @lang64.kernel
    def clear():
        y[None] = 0

    layer = ts.EmptyTin().register_input_field(x).register_input_field(w).register_output_field(y)
    layer.register_kernel(clear).register_kernel(activate).register_kernel(gather).finish()
    for _ in range(3):
        given, weight = rand(N).requires_grad_(), rand().requires_grad_()
        twin = ((weight + given * given) ** 3).sum()
        result = layer(given, weight)
        cases.assert_close(result, twin)
        cases.assert_close(torch.autograd.grad(result, (given, weight)), torch.autograd.grad(twin, (given, weight)))
