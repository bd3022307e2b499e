"""Tube runs what people write for Stannum's: kernels that lean on fields, odd tensors, odd orders of registration."""

import pytest
import torch

from support.dropin import assert_agree, make_leaf, side_by_side

pytestmark = [pytest.mark.thinned(6), side_by_side]

F64 = torch.float64


def tube(layers, kernel, dims=(3,), *extra_args, dims_of_y=None, **options):
    made = layers.Tube(**options).register_input_tensor(dims, F64, "x")
    made = made.register_output_tensor(dims if dims_of_y is None else dims_of_y, F64, "y", True)
    return made.register_kernel(kernel, ["x", "y"], *extra_args).finish()


def places(count):
    return torch.arange(1, count + 1, dtype=F64)


# Styles -------------------------------------------------------------------------------------------
def test_functions_that_are_handed_a_field(layers, lang64):
    @lang64.func
    def around(field: lang64.template(), i):
        return field[i] * field[(i + 1) % field.shape[0]]

    @lang64.kernel
    def smoothed(x: lang64.template(), y: lang64.template()):
        for i in range(x.shape[0]):
            y[i] = around(x, i)

    made, x = tube(layers, smoothed, (layers.MatchDim("n"),)), make_leaf(4)
    assert_agree(made(x), x * x.roll(-1), [x])


def test_several_loops_in_a_batch(layers, lang64):
    @lang64.kernel
    def centered(x: lang64.template(), mean: lang64.template(), y: lang64.template()):
        for i in x:
            mean[None] += x[i] / x.shape[0]
        for i in x:
            y[i] = x[i] - mean[None]

    batch = (layers.BatchDim, layers.MatchDim("n"))
    made = layers.Tube().register_input_tensor(batch, F64, "x")
    made = made.register_intermediate_field((layers.BatchDim,), lang64.f64, "mean", True)
    made = made.register_output_tensor(batch, F64, "y", True)
    made, x = made.register_kernel(centered, ["x", "mean", "y"]).finish(), make_leaf(2, 3)
    assert_agree(made(x), x - x.mean(1, keepdim=True), [x])


def test_grouped_indices_and_any_rank(layers, lang64):
    @lang64.kernel
    def mirrored(x: lang64.template(), y: lang64.template()):
        for place in lang64.grouped(lang64.ndrange(*x.shape)):
            other = place
            other[0] = x.shape[0] - 1 - place[0]
            y[other] = x[place] * x[place]

    for shape in ((3,), (2, 3), (2, 1, 3)):
        x = make_leaf(*shape)
        assert_agree(tube(layers, mirrored, shape)(x), x.flip(0) ** 2, [x])


def test_a_field_of_the_enclosing_scope(layers, lang64):
    table = lang64.field(lang64.f64, shape=3)
    table.from_torch(places(3))

    @lang64.kernel
    def weighed(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = table[i] * x[i] * x[i]

    made, x = tube(layers, weighed), make_leaf(3)
    assert_agree(made(x), places(3) * x**2, [x])
    table.from_torch(-places(3))
    assert_agree(made(x), -places(3) * x**2, [x])


def test_kernels_of_a_data_oriented_object(layers, lang64):
    @lang64.data_oriented
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @lang64.kernel
        def scale(self, x: lang64.template(), y: lang64.template(), shift: lang64.f64):
            for i in x:
                y[i] = self.factor * x[i] * x[i] + shift

    made, x = tube(layers, Scaler(3.0).scale, (3,), 0.5), make_leaf(3)
    assert_agree(made(x), 3 * x**2 + 0.5, [x])


# Extra arguments ----------------------------------------------------------------------------------
def test_extra_arguments_of_every_kind(layers, lang64):
    vec2 = lang64.types.vector(2, lang64.f64)

    @lang64.kernel
    def mixed(x: lang64.template(), y: lang64.template(), n: int, a: float, v: vec2, twice: lang64.template()):
        for i in x:
            y[i] = n * x[i] + a + v[0] * v[1]
            if lang64.static(twice):
                y[i] *= 1.0
                y[i] += x[i]

    made, x = tube(layers, mixed, (3,), 2, 0.25, vec2(3.0, -1.0), True), make_leaf(3)
    torch.testing.assert_close(made(x), 3 * x + 0.25 - 3)
    made.set_kernel_extra_args("mixed", 5, 0.0, vec2(0.0, 0.0), False)
    assert_agree(made(x), 5 * x, [x])


def test_extra_arguments_may_be_set_later(layers, lang64):
    @lang64.kernel
    def scaled(x: lang64.template(), y: lang64.template(), a: float):
        for i in x:
            y[i] = a * x[i]

    for before_finish in (True, False):
        made = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
        made.register_kernel(scaled, ["x", "y"])
        if before_finish:
            made.set_kernel_extra_args(scaled, 2.0)
        made.finish()
        made.set_kernel_extra_args(scaled, 3.0)
        x = make_leaf(3)
        assert_agree(made(x), 3 * x, [x])


def test_a_field_as_extra_argument(layers, lang64):
    table = lang64.field(lang64.f64, shape=3)
    table.from_torch(places(3))

    @lang64.kernel
    def weighed(x: lang64.template(), y: lang64.template(), by: lang64.template()):
        for i in x:
            y[i] = by[i] * x[i] * x[i]

    made, x = tube(layers, weighed, (3,), table), make_leaf(3)
    assert_agree(made(x), places(3) * x**2, [x])


# Tensors ------------------------------------------------------------------------------------------
def square(lang):
    @lang.kernel
    def square(x: lang.template(), y: lang.template()):
        for i in lang.grouped(x):
            y[i] = x[i] * x[i]

    return square


def test_two_calls_before_one_backward(layers, lang64):
    made, first, second = tube(layers, square(lang64)), make_leaf(3), make_leaf(3)
    assert_agree(made(first) * made(second), first**2 * second**2, [first, second])


def test_one_tensor_for_two_inputs(layers, lang64):
    @lang64.kernel
    def product(a: lang64.template(), b: lang64.template(), y: lang64.template()):
        for i in a:
            y[i] = a[i] * b[i] * b[i]

    made = layers.Tube().register_input_tensor((3,), F64, "a").register_input_tensor((3,), F64, "b")
    made = made.register_output_tensor((3,), F64, "y", True).register_kernel(product, ["a", "b", "y"]).finish()
    x = make_leaf(3)
    assert_agree(made(x, x), x**3, [x])


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, :1].expand(3, 3), lambda x: x[::1, :]])
def test_views(layers, lang64, view):
    x = make_leaf(3, 3)
    assert_agree(tube(layers, square(lang64), (3, 3))(view(x)), view(x) ** 2, [x])


@pytest.mark.parametrize("name", ["float16", "int8", "int16", "int64", "uint8"])
def test_other_dtypes(layers, lang64, name):
    dtype = getattr(torch, name)
    made = layers.Tube().register_input_tensor((3,), dtype, "x").register_output_tensor((3,), dtype, "y", False)
    made, x = made.register_kernel(square(lang64), ["x", "y"]).finish(), torch.tensor([1, 3, 5], dtype=dtype)
    y = made(x)
    assert y.dtype == dtype and y.tolist() == [1, 9, 25] and not y.requires_grad


def test_results_of_several_dtypes(layers, lang64):
    @lang64.kernel
    def parts(x: lang64.template(), whole: lang64.template(), rest: lang64.template()):
        for i in x:
            whole[i] = lang64.cast(lang64.floor(x[i]), lang64.i32)
            rest[i] = lang64.cast(x[i] * 2.0, lang64.f32)

    made = layers.Tube().register_input_tensor((3,), F64, "x")
    made = made.register_output_tensor((3,), torch.int32, "whole", False)
    made = made.register_output_tensor((3,), torch.float32, "rest", True)
    made, x = made.register_kernel(parts, ["x", "whole", "rest"]).finish(), make_leaf(3)
    whole, rest = made(x)
    assert whole.dtype == torch.int32 and not whole.requires_grad
    assert torch.equal(whole, x.floor().to(torch.int32))
    assert_agree(rest, (2 * x).float(), [x])


# Links --------------------------------------------------------------------------------------------
def test_one_tensor_for_two_parameters(layers, lang64):
    @lang64.kernel
    def product(a: lang64.template(), b: lang64.template(), y: lang64.template()):
        for i in a:
            y[i] = a[i] * b[i] * b[i]

    made = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    made, x = made.register_kernel(product, ["x", "x", "y"]).finish(), make_leaf(3)
    assert_agree(made(x), x**3, [x])


def test_names_are_any_strings(layers, lang64):
    made = layers.Tube().register_input_tensor((3,), F64, "the input").register_output_tensor((3,), F64, "y-1", True)
    made, x = made.register_kernel(square(lang64), ["the input", "y-1"]).finish(), make_leaf(3)
    assert_agree(made(x), x**2, [x])


def test_outputs_may_be_registered_before_inputs(layers, lang64):
    n = layers.MatchDim("n")
    made = layers.Tube().register_output_tensor((n,), F64, "y", True).register_input_tensor((n,), F64, "x")
    made, x = made.register_kernel(square(lang64), ["x", "y"]).finish(), make_leaf(3)
    assert_agree(made(x), x**2, [x])


def test_an_output_that_a_later_kernel_reads(layers, lang64):
    kernel = square(lang64)
    made = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "once", True)
    made = made.register_output_tensor((3,), F64, "twice", True).register_kernel(kernel, ["x", "once"])
    made, x = made.register_kernel(kernel, ["once", "twice"], name="again").finish(), make_leaf(3)
    assert_agree(made(x), (x**2, x**4), [x])


def test_an_input_that_no_kernel_uses(layers, lang64):
    made = layers.Tube().register_input_tensor((3,), F64, "x").register_input_tensor((2,), F64, "spare")
    made = made.register_output_tensor((3,), F64, "y", True).register_kernel(square(lang64), ["x", "y"]).finish()
    x, spare = make_leaf(3), make_leaf(2)
    made(x, spare).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    assert spare.grad is None or not spare.grad.any()


def test_a_kernel_that_writes_its_input(layers, lang64):
    """The field is written, not the caller's tensor."""

    @lang64.kernel
    def shifted(x: lang64.template()):
        for i in x:
            x[i] += 1.0

    made = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    made = made.register_kernel(shifted, ["x"]).register_kernel(square(lang64), ["x", "y"]).finish()
    x = make_leaf(3)
    before = x.detach().clone()
    assert_agree(made(x), (x + 1) ** 2, [x])
    assert torch.equal(x.detach(), before)
