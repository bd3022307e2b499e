"""Tin and EmptyTin do what Stannum's do: every registration call, every way to hold values."""

import pytest
import torch

import tinsmith as ts
from support.dropin import CPU, assert_agree, make_leaf, side_by_side
from support.scenes import Scene, make_field, model

pytestmark = [pytest.mark.thinned(6), side_by_side]


# What a layer is ----------------------------------------------------------------------------------
def test_a_layer_is_a_module_and_every_call_returns_it(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.tin
    assert isinstance(tin, torch.nn.Module)
    assert tin.register_input_field(scene.x) is tin and tin.register_output_field(scene.y) is tin
    assert tin.register_internal_field(scene.w) is tin and tin.register_kernel(scene.scaled()) is tin
    assert tin.finish() is tin
    x = make_leaf(4)
    assert_agree(torch.nn.Sequential(tin, torch.nn.Tanh())(x), torch.tanh(x), [x])


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_one_input_one_output(layers, lang64, name):
    x, y = (make_field(lang64, (5,), dtype=getattr(lang64, name)) for _ in range(2))

    @lang64.kernel
    def cube():
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y).register_kernel(cube).finish()
    for _ in range(2):
        given = make_leaf(5, dtype=getattr(torch, name))
        assert_agree(tin(given), given**3, [given])


def test_a_tensor_of_another_float_dtype_is_converted(layers, lang64):
    scene = Scene(layers, lang64)
    given = make_leaf(4, dtype=torch.float32)
    y = scene.registered().register_kernel(scene.times(), 2.0).finish()(given)
    assert y.dtype == torch.float64
    y.sum().backward()
    assert given.grad.dtype == torch.float32 and torch.equal(given.grad, torch.full((4,), 2.0))


# Several of each ----------------------------------------------------------------------------------
def test_inputs_are_filled_and_outputs_returned_in_the_order_of_registration(layers, lang64):
    a, b, p, q = (make_field(lang64, (3,)) for _ in range(4))

    @lang64.kernel
    def both():
        for i in a:
            p[i] = a[i] * b[i]
            q[i] = a[i] - 2.0 * b[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(b).register_input_field(a)
    tin = tin.register_output_field(q).register_output_field(p).register_kernel(both).finish()
    first, second = make_leaf(3), make_leaf(3)
    outputs = tin(first, second)
    assert isinstance(outputs, tuple)
    assert_agree(outputs, (second - 2 * first, second * first), [first, second])
    q_alone, _ = tin(first, second)  # nobody asks for p's share
    assert_agree(q_alone, second - 2 * first, [first, second])


def test_kernels_run_in_order_and_backwards_in_reverse(layers, lang64):
    x, between, y = (make_field(lang64, (4,)) for _ in range(3))

    @lang64.kernel
    def first():
        for i in x:
            between[i] = lang64.sin(x[i])

    @lang64.kernel
    def second():
        for i in between:
            y[i] = between[i] * between[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y)
    tin = tin.register_internal_field(between).register_kernel(first).register_kernel(second).finish()
    given = make_leaf(4)
    for _ in range(2):
        assert_agree(tin(given), torch.sin(given) ** 2, [given])


# needs_grad ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("has_grad", "needs_grad", "gets_one"),
    [(True, None, True), (True, True, True), (True, False, False), (False, False, False)],
)
def test_an_input_gets_a_gradient_where_its_field_needs_one(layers, lang64, has_grad, needs_grad, gets_one):
    x, b, y = make_field(lang64, (3,), needs_grad=has_grad), make_field(lang64, (3,)), make_field(lang64, (3,))

    @lang64.kernel
    def product():
        for i in x:
            y[i] = x[i] * b[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x, needs_grad=needs_grad).register_input_field(b)
    tin = tin.register_output_field(y).register_kernel(product).finish()
    first, second, cotangent = make_leaf(3), make_leaf(3), torch.randn(3, dtype=torch.float64)
    tin(first, second).backward(cotangent)
    torch.testing.assert_close(second.grad, cotangent * first.detach())
    if gets_one:
        torch.testing.assert_close(first.grad, cotangent * second.detach())
    else:  # Stannum leaves zeros: Taichi allocates `.grad` of any leaf that it copies from
        assert first.grad is None or (layers is not ts and not first.grad.any())


@pytest.mark.parametrize(("has_grad", "needs_grad"), [(False, None), (True, False), (False, False)])
def test_an_output_without_a_gradient_does_not_require_one(layers, lang64, has_grad, needs_grad):
    x, y, z = make_field(lang64, (3,)), make_field(lang64, (3,)), make_field(lang64, (3,), needs_grad=has_grad)

    @lang64.kernel
    def two():
        for i in x:
            y[i] = 2.0 * x[i]
            z[i] = 3.0 * x[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y)
    tin = tin.register_output_field(z, needs_grad=needs_grad).register_kernel(two).finish()
    given = make_leaf(3)
    kept, plain = tin(given)
    # A generated gradient needs no gradient field, so only needs_grad=False stops it (docs/about/decisions/fields.md).
    is_generated = layers is ts and needs_grad is None
    assert kept.requires_grad and plain.requires_grad == is_generated
    torch.testing.assert_close(plain.detach(), 3 * given.detach())
    if is_generated:
        assert_agree(tin(given)[1], 3 * given, [given])
    assert_agree(kept, 2 * given, [given])


def test_nothing_requires_a_gradient_where_no_input_does(layers, lang64):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_kernel(scene.times(), 2.0).finish()
    assert not tin(torch.rand(4, dtype=torch.float64)).requires_grad
    with torch.no_grad():
        assert not tin(make_leaf(4)).requires_grad


# What a field holds -------------------------------------------------------------------------------
def test_a_field_of_no_dims_takes_a_tensor_of_no_dims(layers, lang64):
    x, y = make_field(lang64, ()), make_field(lang64, ())

    @lang64.kernel
    def square():
        y[None] = x[None] * x[None]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y).register_kernel(square).finish()
    given = make_leaf()
    assert_agree(tin(given), given**2, [given])


def test_a_field_of_vectors_takes_their_length_as_last_dim(layers, lang64):
    x, y = (lang64.Vector.field(3, lang64.f64, shape=(2, 4), needs_grad=True) for _ in range(2))

    @lang64.kernel
    def scaled_by_place():
        for i, j in x:
            for c in lang64.static(range(3)):
                y[i, j][c] = (c + 1) * x[i, j][c] * x[i, j][0]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y)
    tin = tin.register_kernel(scaled_by_place).finish()
    given = make_leaf(2, 4, 3)
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert_agree(tin(given), given * weights * given[..., :1], [given])


def test_a_field_of_matrices_takes_rows_and_columns_as_last_dims(layers, lang64):
    a = lang64.Matrix.field(2, 3, lang64.f64, shape=(4,), needs_grad=True)
    v = lang64.Vector.field(3, lang64.f64, shape=(4,), needs_grad=True)
    y = lang64.Vector.field(2, lang64.f64, shape=(4,), needs_grad=True)

    @lang64.kernel
    def applied():
        for i in a:
            y[i] = a[i] @ v[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(a).register_input_field(v).register_output_field(y)
    tin = tin.register_kernel(applied).finish()
    matrices, vectors = make_leaf(4, 2, 3), make_leaf(4, 3)
    assert_agree(tin(matrices, vectors), torch.einsum("nij,nj->ni", matrices, vectors), [matrices, vectors])


def test_a_vector_without_dims_around_it(layers, lang64):
    x = lang64.Vector.field(3, lang64.f64, shape=(), needs_grad=True)
    y = make_field(lang64, ())

    @lang64.kernel
    def squared_norm():
        y[None] = x[None][0] * x[None][0] + x[None][1] * x[None][1] + x[None][2] * x[None][2]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y)
    tin = tin.register_kernel(squared_norm).finish()
    given = make_leaf(3)
    assert_agree(tin(given), (given**2).sum(), [given])


@pytest.mark.parametrize("dtype", [torch.cfloat, torch.cdouble], ids=str)
def test_complex_tensors_in_fields_of_2_vectors(layers, lang64, dtype):
    real = lang64.f32 if dtype == torch.cfloat else lang64.f64
    a, b, y = (lang64.Vector.field(2, real, shape=(3,), needs_grad=True) for _ in range(3))

    @lang64.kernel
    def product():
        for i in a:
            y[i][0] = a[i][0] * b[i][0] - a[i][1] * b[i][1]
            y[i][1] = a[i][0] * b[i][1] + a[i][1] * b[i][0]

    tin = layers.EmptyTin(CPU, True)
    tin = tin.register_input_field(a, complex_dtype=True).register_input_field(b, complex_dtype=True)
    tin = tin.register_output_field(y, complex_dtype=True).register_kernel(product).finish()
    first, second = make_leaf(3, dtype=dtype), make_leaf(3, dtype=dtype)
    assert_agree(tin(first, second), first * second, [first, second])


def test_complex_tensors_in_scalar_fields_whose_last_dim_is_2(layers, lang64):
    x, y, real = make_field(lang64, (2, 3, 2)), make_field(lang64, (2, 3, 2)), make_field(lang64, (2, 3))

    @lang64.kernel
    def square():
        for i, j in real:
            y[i, j, 0] = x[i, j, 0] * x[i, j, 0] - x[i, j, 1] * x[i, j, 1]
            y[i, j, 1] = 2.0 * x[i, j, 0] * x[i, j, 1]
            real[i, j] = x[i, j, 0]

    tin = layers.EmptyTin(CPU, True).register_input_field(x, complex_dtype=True)
    tin = tin.register_output_field(y, complex_dtype=True).register_output_field(real)
    tin = tin.register_kernel(square).finish()
    given = make_leaf(2, 3, dtype=torch.cdouble)
    assert_agree(tin(given), (given**2, given.real), [given])


# Internal fields ----------------------------------------------------------------------------------
def test_an_internal_field_keeps_what_is_in_it(layers, lang64):
    scene = Scene(layers, lang64)
    scene.w.fill(2.5)
    tin = scene.registered().register_internal_field(scene.w).register_kernel(scene.scaled()).finish()
    given = make_leaf(4)
    assert_agree(tin(given), 2.5 * given, [given])


def test_an_internal_field_starts_with_a_value(layers, lang64):
    scene = Scene(layers, lang64)
    value = torch.tensor(-1.5, dtype=torch.float64)
    tin = scene.registered().register_internal_field(scene.w, value=value).register_kernel(scene.scaled()).finish()
    given = make_leaf(4)
    assert_agree(tin(given), -1.5 * given, [given])


@pytest.mark.parametrize(("name", "key"), [("w", "w"), (None, 0), (None, "0")])
def test_an_internal_field_is_set_by_its_name_or_its_number(layers, lang64, name, key):
    scene = Scene(layers, lang64)
    tin = scene.registered().register_internal_field(scene.w, name=name).register_kernel(scene.scaled()).finish()
    given = make_leaf(4)
    for value in (0.5, -4.0):
        tin.set_internal_field(key, torch.tensor(value, dtype=torch.float64))
        assert_agree(tin(given), value * given, [given])


def test_the_second_unnamed_internal_field_has_number_1(layers, lang64):
    scene = Scene(layers, lang64)
    b = lang64.Vector.field(2, lang64.f64, shape=(), needs_grad=True)
    x, w, y = scene.x, scene.w, scene.y

    @lang64.kernel
    def affine():
        for i in x:
            y[i] = w[None] * x[i] + b[None][0] - b[None][1]

    tin = scene.registered().register_internal_field(w).register_internal_field(b).register_kernel(affine).finish()
    tin.set_internal_field(1, torch.tensor([5.0, 2.0], dtype=torch.float64))
    given = make_leaf(4)
    assert_agree(tin(given), given + 3, [given])


def test_an_internal_field_of_complex_values_is_set_from_a_complex_tensor(layers, lang64):
    x, w, y = (lang64.Vector.field(2, lang64.f64, shape=(3,), needs_grad=True) for _ in range(3))

    @lang64.kernel
    def product():
        for i in x:
            y[i][0] = x[i][0] * w[i][0] - x[i][1] * w[i][1]
            y[i][1] = x[i][0] * w[i][1] + x[i][1] * w[i][0]

    tin = layers.EmptyTin(CPU, True).register_input_field(x, complex_dtype=True)
    tin = tin.register_output_field(y, complex_dtype=True)
    tin = tin.register_internal_field(w, name="w", complex_dtype=True).register_kernel(product).finish()
    weights, given = torch.randn(3, dtype=torch.cdouble), make_leaf(3, dtype=torch.cdouble)
    tin.set_internal_field("w", weights)
    assert_agree(tin(given), weights * given, [given])


@pytest.mark.parametrize(("auto_clear_grad", "second"), [(True, 1), (False, 2)], ids=["cleared", "kept"])
def test_the_gradient_of_an_internal_field_is_cleared_or_adds_up(layers, lang64, auto_clear_grad, second):
    scene = Scene(layers, lang64, auto_clear_grad=auto_clear_grad)
    tin = scene.registered().register_internal_field(scene.w, needs_grad=True, name="w")
    tin = tin.register_kernel(scene.scaled()).finish()
    cotangent = torch.randn(4, dtype=torch.float64)
    given = make_leaf(4)
    once = float((given.detach() * cotangent).sum())
    for times_counted in (1, second):
        tin(given).backward(cotangent)
        assert scene.w.grad[None] == pytest.approx(times_counted * once)


# Arguments of kernels -----------------------------------------------------------------------------
@pytest.mark.parametrize("by_name", [True, False])
def test_kernel_arguments_are_kept_until_set_again(layers, lang64, by_name):
    scene = Scene(layers, lang64)
    kernel = scene.times()
    tin = scene.registered().register_kernel(kernel, 2.0).finish()
    given = make_leaf(4)
    assert_agree(tin(given), 2 * given, [given])
    tin.set_kernel_args("times" if by_name else kernel, -3.0)
    assert_agree(tin(given), -3 * given, [given])


def test_one_kernel_under_two_names_has_two_sets_of_arguments(layers, lang64):
    x, y = make_field(lang64, (4,)), make_field(lang64, (4,))

    @lang64.kernel
    def add(a: lang64.f64):
        for i in x:
            y[i] = a * x[i]

    @lang64.kernel
    def more(a: lang64.f64):
        for i in x:
            y[i] += a * x[i]

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y).register_kernel(add, 1.0)
    tin = tin.register_kernel(more, 2.0, kernel_name="a").register_kernel(more, 30.0, kernel_name="b").finish()
    given = torch.randn(4, dtype=torch.float64)
    torch.testing.assert_close(tin(given), 33 * given)
    tin.set_kernel_args("a", 5.0)
    torch.testing.assert_close(tin(given), 36 * given)


# Tin ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("by_name", [True, False])
def test_tin_takes_kernels_by_name_and_as_methods(layers, lang64, by_name):
    made = model(lang64)
    tin = layers.Tin(made, CPU, True).register_input_field(made.x).register_output_field(made.y)
    tin = tin.register_internal_field(made.w, name="w")
    scale, shift = ("scale", "shift") if by_name else (made.scale, made.shift)
    assert tin.register_kernel(scale) is tin and tin.register_kernel(shift, 7.0, 0.5) is tin
    weights, given = torch.randn(4, dtype=torch.float64), make_leaf(4)
    tin.finish().set_internal_field("w", weights)
    assert_agree(tin(given), weights * given + 7 + 0.5 * given**2, [given])
    tin.set_kernel_args(shift, -1.0, 2.0)
    assert_agree(tin(given), weights * given - 1 + 2 * given**2, [given])


def test_two_objects_of_a_class_do_not_share_their_fields(layers, lang64):
    given, tins = make_leaf(4), []
    for value in (2.0, 3.0):
        made = model(lang64)
        made.w.fill(value)
        tin = layers.Tin(made, CPU, True).register_input_field(made.x).register_output_field(made.y)
        tins.append(tin.register_internal_field(made.w).register_kernel("scale").finish())
    for tin, value in zip(tins, (2.0, 3.0), strict=True):
        assert_agree(tin(given), value * given, [given])


def test_tin_is_an_empty_tin(layers, lang64):
    assert isinstance(layers.Tin(model(lang64), CPU, True), layers.EmptyTin)
