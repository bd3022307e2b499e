"""Kernels that change the fields of their inputs: on tensors they change copies, and gradients are right."""

import pytest
import torch

import cases
import tinsmith as ts

N, STEPS = 4, 3


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def graded(lang, shape=N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


def layer_on(inputs, outputs, *launches, batched=False):
    layer = ts.EmptyTin(on_tensors=True)
    for field in inputs:
        layer.register_input_field(field, batched=batched)
    for field in outputs:
        layer.register_output_field(field)
    for number, (kernel, *arguments) in enumerate(launches):
        layer.register_kernel(kernel, *arguments, kernel_name=f"launch {number}")
    return layer.finish()


def assert_agree(layer, twin, *given):
    """Assert that values and gradients of a layer are those of a function; what it was given is not changed."""
    before = [one.detach().clone() for one in given]
    for _ in range(2):
        ours, theirs = layer(*given), twin(*given)
        cases.assert_close(ours, theirs)
        seeds = torch.randn_like(theirs)
        mine = torch.autograd.grad(ours, given, seeds)
        cases.assert_close(mine, torch.autograd.grad(theirs, given, seeds))
    cases.assert_close(tuple(one.detach() for one in given), tuple(before))


@pytest.mark.parametrize("lead", [(), (3,)])
def test_a_state_that_each_step_changes(lang64, lead):
    x, y = graded(lang64), graded(lang64)

    @lang64.kernel
    def step(dt: lang64.f64):
        for i in x:
            x[i] = x[i] + dt * lang64.sin(x[i])

    @lang64.kernel
    def finish():
        for i in x:
            y[i] = x[i] * x[i]

    def twin(x):
        for _ in range(STEPS):
            x = x + 0.3 * x.sin()
        return x * x

    launches = [(step, 0.3)] * STEPS
    layer = layer_on([x], [y], *launches, (finish,), batched=bool(lead))
    assert_agree(layer, twin, rand(*lead, N).requires_grad_())


def test_a_state_that_is_input_and_output(lang64):
    """Semi-implicit steps of vectors; positions come out, velocities do not."""
    x, v = (lang64.Vector.field(2, lang64.f64, shape=N, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def step():
        for i in x:
            v[i] -= 0.1 * x[i].norm_sqr() * x[i]
            x[i] += 0.1 * v[i]

    def twin(x, v):
        for _ in range(STEPS):
            v = v - 0.1 * x.square().sum(-1, keepdim=True) * x
            x = x + 0.1 * v
        return x

    layer = layer_on([x, v], [x], *[(step,)] * STEPS)
    assert_agree(layer, twin, rand(N, 2).requires_grad_(), rand(N, 2).requires_grad_())


def test_an_input_in_the_first_row_of_a_history(lang64):
    """The state of every step is kept in the field that the input fills: its first row is what counts."""
    x, end = graded(lang64, (STEPS + 1, N)), graded(lang64)

    @lang64.kernel
    def step(t: lang64.i32):
        for i in range(N):
            x[t, i] = 1.5 * lang64.sin(x[t - 1, i])

    @lang64.kernel
    def finish():
        for i in end:
            end[i] = x[STEPS, i] ** 2

    def twin(x):
        state = x[0]
        for _ in range(STEPS):
            state = 1.5 * state.sin()
        return state**2

    layer = layer_on([x], [end], *[(step, t) for t in range(1, STEPS + 1)], (finish,))
    assert_agree(layer, twin, rand(STEPS + 1, N).requires_grad_())


def test_a_weight_that_a_kernel_scales(lang64):
    x, w, y = (graded(lang64) for _ in range(3))

    @lang64.kernel
    def scale():
        for i in w:
            w[i] = 2.0 * w[i]

    @lang64.kernel
    def product():
        for i in y:
            y[i] = w[i] * w[i] * x[i]

    layer = ts.EmptyTin(on_tensors=True).register_input_field(x).register_output_field(y)
    layer.register_weight_field(w, name="w", value=rand(N))
    layer.register_kernel(scale).register_kernel(product).finish()
    given, start = rand(N).requires_grad_(), layer.w.detach().clone()
    for _ in range(2):
        result, again = layer(given), 4 * layer.w.detach().requires_grad_() ** 2 * given
        cases.assert_close(result, again)
        (mine,) = torch.autograd.grad(result.sum(), layer.w)
        cases.assert_close(mine, 8 * start * given.detach())
    cases.assert_close(layer.w.detach(), start)


def test_second_derivatives_and_forward_mode(lang64):
    x, y = graded(lang64), graded(lang64)

    @lang64.kernel
    def cube():
        for i in x:
            x[i] = x[i] ** 3
        for i in x:
            y[i] = x[i] * x[i]

    layer, given = layer_on([x], [y], (cube,)), rand(N)
    hessian = torch.func.hessian(lambda x: layer(x).sum())(given)
    cases.assert_close(hessian, torch.diag(30 * given**4))
