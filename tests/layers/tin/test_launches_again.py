"""Kernels that a layer on tensors launches again and again: one gradient kernel for all, each launch on its values."""

import pytest
import torch

import cases
import tinsmith as ts

N = 4


def graded(lang, *shape):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


class InPlace:
    """Every step overwrites what the gradient of the step before needs."""

    def kernels(self, lang, x, y):
        s = graded(lang, N)

        @lang.kernel
        def begin():
            for i in x:
                s[i] = x[i]

        @lang.kernel
        def step(factor: lang.f64):
            for i in range(N):
                s[i] = s[i] * s[i] * factor

        @lang.kernel
        def finish():
            for i in y:
                y[i] = s[i]

        return [(begin,), *((step, 1.0 / (k + 1)) for k in range(5)), (finish,)]

    def torch(self, x):
        for k in range(5):
            x = x * x / (k + 1)
        return x


class TwoRows:
    """Rows are used again in turn: `t % 2`, as simulations that keep two states do."""

    def kernels(self, lang, x, y):
        s = graded(lang, 2, N)

        @lang.kernel
        def begin():
            for i in x:
                s[0, i] = x[i]

        @lang.kernel
        def step(t: lang.i32):
            for i in range(N):
                s[(t + 1) % 2, i] = s[t % 2, i] * s[t % 2, (i + 1) % N]

        @lang.kernel
        def finish():
            for i in y:
                y[i] = s[1, i]

        return [(begin,), *((step, t) for t in range(3)), (finish,)]

    def torch(self, x):
        for _ in range(3):
            x = x * x.roll(-1)
        return x


class TimeAgain:
    """A time that is written again: what was read there first is gone."""

    def kernels(self, lang, x, y):
        s = graded(lang, 3, N)

        @lang.kernel
        def begin(t: lang.i32):
            for i in x:
                s[t, i] = x[i]

        @lang.kernel
        def step(t: lang.i32, factor: lang.f64):
            for i in range(N):
                s[t + 1, i] = s[t, i] * s[t, i] * factor

        @lang.kernel
        def finish(t: lang.i32):
            for i in y:
                y[i] += s[t, i] * s[t, i]

        return [(begin, 0), (step, 0, 2.0), (step, 1, 3.0), (finish, 2), (step, 0, 5.0), (step, 1, 0.5), (finish, 2)]

    def torch(self, x):
        first, second = x * x * 2, x * x * 5
        return (first * first * 3) ** 2 + (second * second * 0.5) ** 2


class Loops:
    """Loops of different lengths, whose values the gradient keeps on a tape."""

    def kernels(self, lang, x, y):
        s = graded(lang, 4, N)

        @lang.kernel
        def begin():
            for i in x:
                s[0, i] = x[i]

        @lang.kernel
        def step(t: lang.i32, count: lang.i32):
            for i in range(N):
                value = s[t, i]
                for _ in range(count):
                    value = value * value + s[t, i]
                s[t + 1, i] = value

        @lang.kernel
        def finish():
            for i in y:
                y[i] = s[3, i]

        return [(begin,), (step, 0, 1), (step, 1, 3), (step, 2, 2), (finish,)]

    def torch(self, x):
        for count in (1, 3, 2):
            value = x
            for _ in range(count):
                value = value * value + x
            x = value
        return x


class Tape:
    """A loop of one length each time, whose tape all launches may share."""

    def kernels(self, lang, x, y):
        @lang.kernel
        def add(factor: lang.f64):
            for i in range(N):
                left = factor
                for k in range(N):
                    left *= lang.exp(-x[k] * x[i])
                y[i] += left

        return [(add, 2.0), (add, 3.0), (add, 0.5)]

    def torch(self, x):
        return 5.5 * torch.exp(-x * x.sum())


class Maxima:
    """A greatest value, taken anew from what the last step left."""

    def kernels(self, lang, x, y):
        s, top = graded(lang, 3, N), graded(lang, 3)

        @lang.kernel
        def begin():
            for i in x:
                s[0, i] = x[i]

        @lang.kernel
        def step(t: lang.i32):
            for i in range(N):
                lang.atomic_max(top[t], s[t, i])
            for i in range(N):
                s[t + 1, i] = s[t, i] * s[t, i] / top[t]

        @lang.kernel
        def finish():
            for i in y:
                y[i] = s[2, i]

        return [(begin,), (step, 0), (step, 1), (finish,)]

    def torch(self, x):
        for _ in range(2):
            x = x * x / x.amax()
        return x


class Fresh:
    """A kernel without arguments that does the same again, and one that adds to its result each time."""

    def kernels(self, lang, x, y):
        s = graded(lang, N)

        @lang.kernel
        def store():
            for i in x:
                s[i] = x[i] * x[i]

        @lang.kernel
        def add():
            for i in y:
                y[i] += s[i] * s[i]

        return [(store,), (store,), (add,), (store,), (add,)]

    def torch(self, x):
        return 2 * x**4


def make_layer(lang, program, **how):
    x, y = graded(lang, N), graded(lang, N)
    layer = ts.EmptyTin(on_tensors=True).register_input_field(x, **how).register_output_field(y)
    for number, (kernel, *arguments) in enumerate(program.kernels(lang, x, y)):
        layer.register_kernel(kernel, *arguments, kernel_name=f"{kernel.__name__} {number}")
    return layer.finish()


PROGRAMS = [InPlace, TwoRows, TimeAgain, Loops, Tape, Maxima, Fresh]


@pytest.mark.thinned(6)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_gradients(lang64, program):
    layer, c = make_layer(lang64, program()), torch.rand(N, dtype=torch.float64)
    for _ in range(2):
        x = (torch.rand(N, dtype=torch.float64) * 0.5 + 0.3).requires_grad_()
        result, expected = layer(x), program().torch(x)
        cases.assert_close(result, expected)
        cases.assert_close(torch.autograd.grad(result, x, c), torch.autograd.grad(expected, x, c))


def test_a_batch(lang64):
    x = (torch.rand(3, N, dtype=torch.float64) * 0.5 + 0.3).requires_grad_()
    result = make_layer(lang64, TimeAgain(), batched=True)(x)
    expected = torch.stack([TimeAgain().torch(one) for one in x])
    cases.assert_close(torch.autograd.grad(result.sum(), x), torch.autograd.grad(expected.sum(), x))


@pytest.mark.costly
@pytest.mark.parametrize("program", [InPlace, TimeAgain, Loops], ids=lambda one: one.__name__)
def test_batches_and_further_derivatives(lang64, program):
    x = torch.rand(3, N, dtype=torch.float64) * 0.5 + 0.3
    single, batched = make_layer(lang64, program()), make_layer(lang64, program(), batched=True)
    slopes = torch.func.vmap(torch.func.grad(lambda x: program().torch(x).sum()))(x)
    given = x.clone().requires_grad_()
    cases.assert_close(torch.autograd.grad(batched(given).sum(), given), (slopes,))
    cases.assert_close(torch.func.vmap(torch.func.grad(lambda x: single(x).sum()))(x), slopes)
    cases.assert_close(
        torch.func.jvp(single, (x[0],), (x[1],))[1], torch.func.jvp(program().torch, (x[0],), (x[1],))[1]
    )
    hessian = torch.func.hessian(lambda x: program().torch(x).sum())(x[0])
    cases.assert_close(torch.func.hessian(lambda x: single(x).sum())(x[0]), hessian)


def test_arguments_may_be_set_again(lang64):
    """Other times are other dependences: what the first call could leave in place is overwritten in the second."""
    x, y, s = graded(lang64, N), graded(lang64, N), graded(lang64, 3, N)

    @lang64.kernel
    def begin():
        for i in x:
            s[0, i] = x[i]

    @lang64.kernel
    def step(t: lang64.i32, to: lang64.i32):
        for i in range(N):
            s[to, i] = s[t, i] * s[t, i]

    @lang64.kernel
    def finish(t: lang64.i32):
        for i in y:
            y[i] = s[t, i] * s[t, i]

    layer = ts.EmptyTin(on_tensors=True).register_input_field(x).register_output_field(y).register_kernel(begin)
    layer.register_kernel(step, 0, 1, kernel_name="first").register_kernel(step, 1, 2, kernel_name="second")
    layer.register_kernel(finish, 2).finish()
    given = torch.rand(N, dtype=torch.float64).requires_grad_()
    cases.assert_close(torch.autograd.grad(layer(given).sum(), given), (8 * given**7,))
    layer.set_kernel_args("second", 1, 0)
    layer.set_kernel_args(finish, 0)
    cases.assert_close(torch.autograd.grad(layer(given).sum(), given), (8 * given**7,))
