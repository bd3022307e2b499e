"""Fields reached otherwise than by a name, on dense layouts: each takes the generated gradient, which is torch's.

Those in lists, dicts and structs may be run on tensors too, where arrays take their place.

The layers say `adjoint="source"`, so that the engine's own reverse mode cannot stand in for a gradient that is refused.
"""

from typing import Any

import pytest
import torch

import tinsmith as ts

N = 4


def graded(lang: Any):
    return lang.field(lang.f64, shape=N, needs_grad=True)


def by_lists_and_dicts(lang: Any):
    x, a, y = graded(lang), graded(lang), graded(lang)
    nested = [[x, a], {"y": y}]
    named = {"a": a}

    @lang.kernel
    def step():
        for i in range(N):
            nested[0][1][i] = nested[0][0][i] * nested[0][0][i]
        for i in range(N):
            nested[1]["y"][i] = named["a"][i] * nested[0][0][i]

    return x, y, step, lambda x: x**3


def by_members_of_a_struct_type(lang: Any):
    x, y = graded(lang), graded(lang)
    p = lang.types.struct(a=lang.f64, b=lang.types.vector(2, lang.f64)).field(shape=N, needs_grad=True)

    @lang.kernel
    def step():
        for i in range(N):
            p[i].a = x[i] * x[i]
            p[i].b = [lang.sin(x[i]), p[i].a]
        for i in p:
            y[i] = p[i].b[0] * p.b[i][1] * p[i].a

    return x, y, step, lambda x: torch.sin(x) * x**4


def by_a_method_of_a_dataclass(lang: Any):
    x, y = graded(lang), graded(lang)

    @lang.dataclass
    class Pair:
        a: lang.f64
        b: lang.f64

        @lang.func
        def product(self):
            return self.a * self.b

    p = Pair.field(shape=N, needs_grad=True)

    @lang.kernel
    def step():
        for i in range(N):
            p[i] = Pair(x[i] * 2.0, lang.sin(x[i]))
        for i in range(N):
            y[i] = p[i].product()

    return x, y, step, lambda x: 2 * x * torch.sin(x)


def by_an_offset(lang: Any):
    x, z, y = lang.field(lang.f64), lang.field(lang.f64), graded(lang)
    for field in (x, z):
        lang.root.dense(lang.i, N).place(field, offset=-2)

    @lang.kernel
    def step():
        for i in x:
            z[i] = x[i] * x[i]
        for i in range(-2, N - 2):
            y[i + 2] = z[i] * x[i]

    return x, y, step, lambda x: x**3


def by_an_early_return_of_a_real_function(lang: Any):
    x, y = graded(lang), graded(lang)

    @lang.real_func
    def power(i: lang.i32) -> lang.f64:
        if x[i] > 0.5:
            return x[i] * x[i] * x[i]
        return x[i] * x[i]

    @lang.kernel
    def step():
        for i in range(N):
            y[i] = power(i)

    return x, y, step, lambda x: torch.where(x > 0.5, x**3, x**2)


@pytest.mark.parametrize(
    "reach",
    [
        by_lists_and_dicts,
        by_members_of_a_struct_type,
        by_a_method_of_a_dataclass,
        by_an_offset,
        by_an_early_return_of_a_real_function,
    ],
)
def test_fields_reached_indirectly_have_the_generated_gradient(lang64, reach):
    x, y, step, twin = reach(lang64)
    layer = (
        ts.EmptyTin(adjoint="source").register_kernel(step).register_input_field(x).register_output_field(y).finish()
    )
    for _ in range(2):
        given = torch.tensor([0.2, 0.4, 0.7, 0.9], dtype=torch.float64).add(torch.rand(()) / 20).requires_grad_()
        result, wanted = layer(given), twin(given)
        torch.testing.assert_close(result, wanted)
        torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), given) for one in (result, wanted)))


@pytest.mark.parametrize("reach", [by_lists_and_dicts, by_members_of_a_struct_type])
def test_a_field_in_a_list_or_a_struct_is_an_array_on_tensors(lang64, reach):
    x, y, step, twin = reach(lang64)
    layer = (
        ts.EmptyTin(adjoint="source")
        .register_kernel(step)
        .register_input_field(x, batched=True)
        .register_output_field(y)
        .finish()
    )
    given = torch.rand(3, N, dtype=torch.float64, requires_grad=True)
    result, wanted = layer(given), twin(given)
    torch.testing.assert_close(result, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), given) for one in (result, wanted)))
    assert not y.to_numpy().any(), "the fields themselves are left alone"


def test_a_field_in_a_list_is_an_array_in_functions_and_methods(lang64):
    @lang64.data_oriented
    class Model:
        def __init__(self):
            self.fields = {"x": graded(lang64), "y": graded(lang64)}
            self.factors = [2.0, 3.0]

        @lang64.func
        def scaled(self, i):
            return self.fields["x"][i] * self.factors[1]

        @lang64.kernel
        def step(self):
            for i in self.fields["x"]:
                self.fields["y"][i] = self.scaled(i) * self.fields["x"][i]

    model = Model()
    layer = (
        ts.EmptyTin(adjoint="source", on_tensors=True)
        .register_kernel(model.step)
        .register_input_field(model.fields["x"])
        .register_output_field(model.fields["y"])
        .finish()
    )
    given = torch.rand(N, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(layer(given), 3 * given**2)
    model.factors[1] = 5.0
    (grad,) = torch.autograd.grad(layer(given).sum(), given)
    torch.testing.assert_close(grad, 10 * given.detach())


def test_a_field_that_a_list_gives_by_a_variable_is_refused_on_tensors(lang64):
    xs, y = [graded(lang64), graded(lang64)], graded(lang64)

    @lang64.kernel
    def step():
        for i in y:
            for k in lang64.static(range(2)):
                y[i] += xs[k][i]

    layer = ts.EmptyTin(on_tensors=True).register_kernel(step).register_input_field(xs[0]).register_output_field(y)
    with pytest.raises(ts.KernelError, match=r"`step` of EmptyTin uses the field `xs\[\d\]` in a way that no array"):
        layer.finish()(torch.rand(N, dtype=torch.float64))
