"""A field that kernels only read, changed between a call and its backward pass: the gradient is that of the call."""

import pytest
import torch

import cases
import tinsmith as ts

N = 4


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def graded(lang, shape=N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


# Ways in which a kernel reads a field `w`; each gives the kernel of y = w^2 x.
def by_its_name(lang, x, w, y):
    @lang.kernel
    def kernel():
        for i in x:
            y[i] = w[i] * w[i] * x[i]

    return kernel, ()


def in_a_function(lang, x, w, y):
    @lang.func
    def squared(i):
        return w[i] * w[i]

    @lang.kernel
    def kernel():
        for i in x:
            y[i] = squared(i) * x[i]

    return kernel, ()


def of_its_object(lang, x, w, y):
    @lang.data_oriented
    class Owner:
        def __init__(self):
            self.w = w

        @lang.kernel
        def kernel(self):
            for i in x:
                y[i] = self.w[i] * self.w[i] * x[i]

    return Owner().kernel, ()


def as_an_argument(lang, x, w, y):
    @lang.kernel
    def kernel(table: lang.template()):
        for i in x:
            y[i] = table[i] * table[i] * x[i]

    return kernel, (w,)


WAYS = [by_its_name, in_a_function, of_its_object, as_an_argument]


# Ways in which the field gets other values.
def by_elements(lang, w, values):
    for i, value in enumerate(values.tolist()):
        w[i] = value


def from_torch(lang, w, values):
    w.from_torch(values)


def from_numpy(lang, w, values):
    w.from_numpy(values.numpy())


def copied(lang, w, values):
    other = graded(lang)
    other.from_torch(values)
    w.copy_from(other)


def by_a_kernel(lang, w, values):
    @lang.kernel
    def change(values: lang.types.ndarray()):
        for i in w:
            w[i] = values[i]

    change(values.numpy())


def by_another_layer(lang, w, values):
    x = graded(lang)

    @lang.kernel
    def through():
        for i in x:
            w[i] = x[i]

    ts.EmptyTin().register_kernel(through).register_input_field(x).register_output_field(w).finish()(values)


CHANGES = [by_elements, from_torch, from_numpy, copied, by_a_kernel, by_another_layer]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("is_registered", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_a_field_that_a_kernel_reads(lang64, way, is_registered):
    check(lang64, way, from_torch, is_registered=is_registered)


@pytest.mark.parametrize("change", CHANGES)
def test_every_way_to_change_a_field_is_noticed(lang64, change):
    check(lang64, by_its_name, change, is_registered=False)


def check(lang, way, change, *, is_registered):
    x, w, y = graded(lang), graded(lang), graded(lang)
    kernel, arguments = way(lang, x, w, y)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(kernel, *arguments)
    if is_registered:
        layer.register_internal_field(w, name="w")
    layer.finish()
    values, inputs = [rand(N) for _ in range(3)], [rand(N).requires_grad_() for _ in range(3)]
    results = []
    for one, given in zip(values, inputs, strict=True):
        change(lang, w, one)
        results.append(layer(given))
    for one, given, result in zip(values, inputs, results, strict=True):
        cotangent = rand(N)
        cases.assert_close(torch.autograd.grad(result, given, cotangent), (cotangent * one * one,))
    cases.assert_close(w.to_torch(), values[-1])  # a backward pass leaves it as it was found


@pytest.mark.parametrize("dtype", ["i32", "f64"])
def test_changed_fields_that_decide_branches_are_noticed(lang64, dtype):
    """Which branch was taken, and how often a loop ran, is part of the call too."""
    x, y = graded(lang64), graded(lang64)
    mode = lang64.field(getattr(lang64, dtype), shape=())

    @lang64.kernel
    def kernel():
        for i in x:
            if mode[None] > 0:
                y[i] = 3.0 * x[i]
            else:
                y[i] = x[i] * x[i]

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(kernel).finish()
    given = rand(N).requires_grad_()
    mode[None] = 1
    first = layer(given)
    mode[None] = 0
    second = layer(given)
    cases.assert_close(torch.autograd.grad(first.sum(), given), (torch.full_like(given, 3.0),))
    cases.assert_close(torch.autograd.grad(second.sum(), given), (2.0 * given.detach(),))


@pytest.mark.compiled_engine
def test_a_large_field_is_saved_once_for_calls_that_find_the_same(lang64):
    size = (1 << 20) // 8
    x, y, table = graded(lang64), graded(lang64), lang64.field(lang64.f64, shape=size)

    @lang64.kernel
    def kernel():
        for i in x:
            y[i] = table[i] * x[i]

    table.fill(2.0)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(kernel).finish()
    given = rand(N).requires_grad_()
    results = [layer(given) for _ in range(2)]
    table.fill(5.0)
    results.append(layer(given))
    saved = [{t.data_ptr() for t in result.grad_fn.saved_tensors if t.numel() == size} for result in results]
    assert saved[0] == saved[1] != saved[2]
    for result, factor in zip(results, (2.0, 2.0, 5.0), strict=True):
        cases.assert_close(torch.autograd.grad(result.sum(), given), (torch.full_like(given, factor),))


def test_a_field_that_a_tube_on_fields_reads(lang64):
    w = graded(lang64)

    @lang64.kernel
    def kernel(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = w[i] * w[i] * x[i]

    def make(fields_builder, concrete_tensor_shape, needs_grad):
        field = lang64.field(lang64.f64, needs_grad=needs_grad)
        fields_builder.dense(lang64.i, N).place(field, field.grad)
        return field

    tube = ts.Tube().register_input_tensor((N,), torch.float64, "x", field_manager=make)
    tube.register_output_tensor((N,), torch.float64, "y", True).register_kernel(kernel, ["x", "y"]).finish()
    given, values = rand(N).requires_grad_(), [rand(N), rand(N)]
    results = []
    for one in values:
        w.from_torch(one)
        results.append(tube(given))
    for one, result in zip(values, results, strict=True):
        cases.assert_close(torch.autograd.grad(result.sum(), given), (one * one,))
    cases.assert_close(w.to_torch(), values[-1])
