"""Tin and EmptyTin run what people write for Stannum's: arguments of every kind, placements, outputs that add up."""

import pytest
import torch

from support.dropin import CPU, assert_agree, make_leaf, side_by_side
from support.scenes import Scene, make_field

pytestmark = [pytest.mark.thinned(6), side_by_side]

F64 = torch.float64


def wrapped(layers, x, y, kernel, *arguments, auto_clear=False):
    tin = layers.EmptyTin(CPU, True, auto_clear).register_input_field(x).register_output_field(y)
    return tin.register_kernel(kernel, *arguments).finish()


# Outputs ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("auto_clear", "second"), [(False, 2), (True, 1)], ids=["kept", "cleared"])
def test_an_output_that_is_added_to_keeps_what_it_had_or_is_cleared(layers, lang64, auto_clear, second):
    """Fields live between calls; the third argument clears the outputs before each."""
    x, y = make_field(lang64, (3,)), make_field(lang64, (3,))

    @lang64.kernel
    def add():
        for i in x:
            y[i] += x[i] * x[i]

    tin, given = wrapped(layers, x, y, add, auto_clear=auto_clear), make_leaf(3)
    for count in (1, second):
        assert_agree(tin(given), count * given.detach() ** 2 + given**2 - given.detach() ** 2, [given])


@pytest.mark.filterwarnings("ignore:no kernel of EmptyTin writes its output")  # what is meant here
def test_an_output_that_no_kernel_writes_shows_what_is_in_it(layers, lang64):
    x, y, z = make_field(lang64, (3,)), make_field(lang64, (3,)), make_field(lang64, (3,))
    z.fill(4.0)

    @lang64.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y).register_output_field(z)
    written, untouched = tin.register_kernel(double).finish()(make_leaf(3))
    assert untouched.tolist() == [4.0] * 3 and written.requires_grad


def test_one_field_is_input_and_output(layers, lang64):
    x, w = make_field(lang64, (3,)), make_field(lang64, (3,))

    @lang64.kernel
    def shift():
        for i in x:
            x[i] += w[i] * w[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_input_field(w).register_output_field(x)
    tin, first, second = tin.register_kernel(shift).finish(), make_leaf(3), make_leaf(3)
    for _ in range(2):
        torch.testing.assert_close(tin(first, second), first + second**2)


def test_an_output_that_a_later_kernel_reads(layers, lang64):
    x, once, twice = (make_field(lang64, (3,)) for _ in range(3))

    @lang64.kernel
    def first():
        for i in x:
            once[i] = x[i] * x[i]

    @lang64.kernel
    def second():
        for i in once:
            twice[i] = once[i] * x[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(once).register_output_field(twice)
    tin, given = tin.register_kernel(first).register_kernel(second).finish(), make_leaf(3)
    assert_agree(tin(given), (given**2, given**3), [given])


# Arguments ----------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:no kernel of EmptyTin writes its output")  # what is meant here
def test_fields_as_arguments(layers, lang64):
    x, y, other = make_field(lang64, (3,)), make_field(lang64, (3,)), make_field(lang64, (3,))

    @lang64.kernel
    def product(a: lang64.template(), b: lang64.template(), factor: lang64.f64):
        for i in a:
            b[i] = factor * a[i] * a[i]

    tin, given = wrapped(layers, x, y, product, x, y, 3.0), make_leaf(3)
    assert_agree(tin(given), 3 * given**2, [given])
    tin.set_kernel_args("product", x, other, 3.0)
    y.fill(0.0)
    assert not tin(given).any()
    tin.set_kernel_args("product", x, y, -1.0)
    assert_agree(tin(given), -(given**2), [given])


def test_arguments_of_every_kind(layers, lang64):
    x, y = make_field(lang64, (3,)), make_field(lang64, (3,))
    vec2 = lang64.types.vector(2, lang64.f64)

    @lang64.kernel
    def mixed(n: int, a: float, v: vec2, twice: lang64.template()):
        for i in x:
            y[i] = n * x[i] + a + v[0] * v[1]
            if lang64.static(twice):
                y[i] += x[i]

    tin, given = wrapped(layers, x, y, mixed, 2, 0.25, vec2(3.0, -1.0), True), make_leaf(3)
    torch.testing.assert_close(tin(given), 3 * given + 0.25 - 3)
    tin.set_kernel_args(mixed, 5, 0.0, vec2(0.0, 0.0), False)
    assert_agree(tin(given), 5 * given, [given])


def test_a_tensor_as_argument(layers, lang64):
    """Read by the kernel as it is at the call; no gradient goes there."""
    x, y, table = make_field(lang64, (3,)), make_field(lang64, (3,)), torch.tensor([2.0, 3.0, 4.0], dtype=F64)

    @lang64.kernel
    def weighed(by: lang64.types.ndarray()):
        for i in x:
            y[i] = by[i] * x[i]

    tin, given = wrapped(layers, x, y, weighed, table), make_leaf(3)
    assert_agree(tin(given), table * given, [given])


def test_a_flag_as_argument(layers, lang64):
    x, y = make_field(lang64, (3,)), make_field(lang64, (3,))

    @lang64.kernel
    def flagged(flag: bool):
        for i in x:
            y[i] = x[i]
            if flag:
                y[i] = 2.0 * x[i]

    tin, given = wrapped(layers, x, y, flagged, True), make_leaf(3)
    assert_agree(tin(given), 2 * given, [given])


@pytest.mark.parametrize("when", ["before finish", "after finish"])
def test_arguments_may_be_set_later(layers, lang64, when):
    scene = Scene(layers, lang64)
    kernel = scene.times()
    tin = scene.registered().register_kernel(kernel)
    if when == "before finish":
        tin.set_kernel_args(kernel, 3.0)
    tin.finish()
    if when == "after finish":
        tin.set_kernel_args(kernel, 3.0)
    given = make_leaf(4)
    assert_agree(tin(given), 3 * given, [given])


# Fields -------------------------------------------------------------------------------------------
def in_tree(lang):
    x, y = (lang.field(lang.f64, needs_grad=True) for _ in range(2))
    lang.root.dense(lang.i, 4).place(x, x.grad, y, y.grad)
    return x, y


def in_blocks(lang):
    x, y = (lang.field(lang.f64, needs_grad=True) for _ in range(2))
    lang.root.dense(lang.i, 2).dense(lang.i, 2).place(x, x.grad)
    lang.root.dense(lang.i, 4).place(y, y.grad)
    return x, y


def of_a_builder(lang):
    x, y = (lang.field(lang.f64, needs_grad=True) for _ in range(2))
    builder = lang.FieldsBuilder()
    builder.dense(lang.i, 4).place(x, x.grad, y, y.grad)
    builder.finalize()
    return x, y


def lazily(lang):
    x, y = (lang.field(lang.f64) for _ in range(2))
    lang.root.dense(lang.i, 4).place(x, y)
    lang.root.lazy_grad()
    return x, y


@pytest.mark.parametrize("placed", [in_tree, in_blocks, of_a_builder, lazily])
def test_fields_placed_by_hand(layers, lang64, placed):
    x, y = placed(lang64)

    @lang64.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    tin, given = wrapped(layers, x, y, square), make_leaf(4)
    assert_agree(tin(given), given**2, [given])


def test_fields_of_integers(layers, lang64):
    index, x, y = lang64.field(lang64.i32, shape=3), make_field(lang64, (4,)), make_field(lang64, (3,))

    @lang64.kernel
    def picked():
        for i in index:
            y[i] = 2.0 * x[index[i]]

    tin = layers.EmptyTin(CPU, True).register_input_field(index).register_input_field(x).register_output_field(y)
    tin, given = tin.register_kernel(picked).finish(), make_leaf(4)
    places = torch.tensor([3, 0, 3], dtype=torch.int32)
    assert_agree(tin(places, given), 2 * given[places], [given])


def test_fields_with_an_offset(layers, lang64):
    x, y = (lang64.field(lang64.f64, shape=3, offset=-1, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i] * (i + 2)

    tin, given = wrapped(layers, x, y, square), make_leaf(3)
    assert_agree(tin(given), given**2 * torch.arange(1, 4), [given])


# Tensors ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("view", [lambda x: x[::2], lambda x: x[:1].expand(4), lambda x: x.view(2, 4)[1]])
def test_views(layers, lang64, view):
    scene, given = Scene(layers, lang64), make_leaf(8)
    tin = scene.registered().register_kernel(scene.times(), 2.0).finish()
    assert_agree(tin(view(given)), 2 * view(given), [given])


def test_one_tensor_for_two_inputs(layers, lang64):
    a, b, y = (make_field(lang64, (3,)) for _ in range(3))

    @lang64.kernel
    def product():
        for i in a:
            y[i] = a[i] * b[i] * b[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(a).register_input_field(b).register_output_field(y)
    tin, given = tin.register_kernel(product).finish(), make_leaf(3)
    assert_agree(tin(given, given), given**3, [given])


def test_a_result_that_is_summed(layers, lang64):
    """The gradient that comes back is one number, expanded."""
    scene, given = Scene(layers, lang64), make_leaf(4)
    tin = scene.registered().register_kernel(scene.times(), 2.0).finish()
    tin(given).sum().backward()
    torch.testing.assert_close(given.grad, torch.full((4,), 2.0, dtype=F64))
    tin(given).sum().backward()
    torch.testing.assert_close(given.grad, torch.full((4,), 4.0, dtype=F64))


def test_a_gradient_may_be_asked_for_twice(layers, lang64):
    scene, given, cotangent = Scene(layers, lang64), make_leaf(4), torch.randn(4, dtype=F64)
    y = scene.registered().register_kernel(scene.times(), 2.0).finish()(given)
    for _ in range(2):
        [gradient] = torch.autograd.grad(y, given, cotangent, retain_graph=True)
        torch.testing.assert_close(gradient, 2 * cotangent)


def test_results_stay_as_they_are_when_the_layer_is_called_again(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_kernel(scene.times(), 2.0).finish()
    first, second = torch.rand(4, dtype=F64), torch.rand(4, dtype=F64)
    result = tin(first)
    tin(second)
    torch.testing.assert_close(result, 2 * first)
