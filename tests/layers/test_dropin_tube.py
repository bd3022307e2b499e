"""Tube does what Stannum's does: every kind of dim, of tensor, of mode, values and gradients."""

import pytest
import torch

from support.dropin import CPU, assert_agree, make_leaf, side_by_side

pytestmark = [pytest.mark.thinned(6), side_by_side]

F64 = torch.float64
both_modes = pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "eager"])


def square(lang):
    @lang.kernel
    def square(x: lang.template(), y: lang.template()):
        for i in lang.grouped(x):
            y[i] = x[i] * x[i]

    return square


def affine(lang):
    """Build y = a w x + b, with a and b extra arguments."""

    @lang.kernel
    def affine(w: lang.template(), x: lang.template(), y: lang.template(), a: lang.f64, b: lang.f64):
        for i in x:
            y[i] = a * w[i] * x[i] + b

    return affine


def convolution(lang):
    @lang.kernel
    def convolution(x: lang.template(), k: lang.template(), y: lang.template()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    return convolution


def of_valid_length(name, dims, shapes):
    """Return dims of a convolution's output."""
    return (shapes["x"][0] - shapes["k"][0] + 1,)


def convolved(x, k):
    return torch.nn.functional.conv1d(x[None, None], k[None, None])[0, 0]


def one_to_one(layers, lang, dims, dtype=F64, kernel=square, **options):
    """Make a Tube with an input and an output of equal dims."""
    tube = layers.Tube(**options).register_input_tensor(dims, dtype, "x")
    return tube.register_output_tensor(dims, dtype, "y", True).register_kernel(kernel(lang), ["x", "y"]).finish()


# What a tube is -----------------------------------------------------------------------------------
def test_a_tube_is_a_module_every_call_returns_it_and_finish_may_be_called_again(layers, lang64):
    tube = layers.Tube(CPU)
    assert isinstance(tube, torch.nn.Module)
    assert tube.register_input_tensor((3,), F64, "x") is tube
    assert tube.register_intermediate_field((3,), lang64.f64, "between", True) is tube
    assert tube.register_output_tensor((3,), F64, "y", True) is tube
    kernel = square(lang64)
    assert tube.register_kernel(kernel, ["x", "between"], name="once") is tube
    assert tube.register_kernel(kernel, ["between", "y"]) is tube
    assert tube.finish() is tube and tube.finish() is tube
    x = make_leaf(3)
    assert_agree(torch.nn.Sequential(torch.nn.Tanh(), tube)(x), torch.tanh(x) ** 4, [x])


# Dims ---------------------------------------------------------------------------------------------
@both_modes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fixed_dims(layers, lang64, dtype, persistent):
    tube = one_to_one(layers, lang64, (2, 3), dtype, persistent_field=persistent)
    for _ in range(2):
        x = make_leaf(2, 3, dtype=dtype)
        assert_agree(tube(x), x**2, [x])


def test_a_list_of_dims(layers, lang64):
    tube, x = one_to_one(layers, lang64, [2, 3]), make_leaf(2, 3)
    assert_agree(tube(x), x**2, [x])


def test_no_dims(layers, lang64):
    @lang64.kernel
    def product(x: lang64.template(), k: lang64.template(), y: lang64.template()):
        y[None] = x[None] * x[None] * k[0]

    tube = layers.Tube().register_input_tensor((), F64, "x").register_input_tensor((1,), F64, "k")
    tube = tube.register_output_tensor((), F64, "y", True).register_kernel(product, ["x", "k", "y"]).finish()
    x, k = make_leaf(), make_leaf(1)
    assert_agree(tube(x, k), x**2 * k[0], [x, k])


def test_any_dim_takes_another_size_at_each_call(layers, lang64):
    @lang64.kernel
    def total(x: lang64.template(), y: lang64.template()):
        for i, j in x:
            y[i] += x[i, j] * x[i, j]

    tube = layers.Tube().register_input_tensor((2, layers.AnyDim), F64, "x")
    tube = tube.register_output_tensor((2,), F64, "y", True).register_kernel(total, ["x", "y"]).finish()
    for size in (1, 5):
        x = make_leaf(2, size)
        assert_agree(tube(x), (x**2).sum(1), [x])


@pytest.mark.parametrize("names", [("n", "m"), (0, 1)], ids=["names", "numbers"])
def test_match_dims(layers, lang64, names):
    @lang64.kernel
    def product(a: lang64.template(), b: lang64.template(), y: lang64.template()):
        for i, j in y:
            for k in range(b.shape[0]):
                y[i, j] += a[i, k] * b[k, j]

    n, m = (layers.MatchDim(name) for name in names)
    tube = layers.Tube().register_input_tensor((layers.AnyDim, n), F64, "a").register_input_tensor((n, m), F64, "b")
    tube = tube.register_output_tensor((2, m), F64, "y", True).register_kernel(product, ["a", "b", "y"]).finish()
    for inner, outer in ((3, 1), (1, 4)):
        a, b = make_leaf(2, inner), make_leaf(inner, outer)
        assert_agree(tube(a, b), a @ b, [a, b])


def test_dims_compare_by_kind_and_match_dims_by_name(layers, lang64):
    any_dim, batch, match = layers.AnyDim, layers.BatchDim, layers.MatchDim
    assert match("n") == match("n") and match("n") != match("m") and match(1) != match("1")
    assert len({any_dim, batch, match("n"), match("n"), match(0), 0, 3}) == 6
    assert all(isinstance(dim, layers.DimOption) for dim in (any_dim, batch, match("n"), 3))
    assert isinstance("n", layers.DimID) and isinstance(0, layers.DimID)


# Batches ------------------------------------------------------------------------------------------
@both_modes
def test_a_batch(layers, lang64, persistent):
    dims = (layers.BatchDim, layers.MatchDim("n"))
    tube = one_to_one(layers, lang64, dims, persistent_field=persistent)
    for shape in ((3, 4), (1, 2)):
        x = make_leaf(*shape)
        assert_agree(tube(x), x**2, [x])


def test_a_batch_of_0_d_tensors(layers, lang64):
    @lang64.kernel
    def cube(x: lang64.template(), y: lang64.template()):
        y[None] = x[None] * x[None] * x[None]

    tube, x = one_to_one(layers, lang64, (layers.BatchDim,), kernel=lambda _: cube), make_leaf(3)
    assert_agree(tube(x), x**3, [x])


@both_modes
def test_inputs_with_and_without_a_batch(layers, lang64, persistent):
    """What all samples share gets the sum of their gradients."""
    batch = (layers.BatchDim, 3)
    tube = layers.Tube(persistent_field=persistent)
    tube = tube.register_input_tensor((3,), F64, "w").register_input_tensor(batch, F64, "x")
    tube = tube.register_output_tensor(batch, F64, "y", True)
    tube = tube.register_kernel(affine(lang64), ["w", "x", "y"], 2.0, -1.0).finish()
    w, x = make_leaf(3), make_leaf(2, 3)
    assert_agree(tube(w, x), 2 * w * x - 1, [w, x])


def test_a_batch_through_several_kernels(layers, lang64):
    """In persistent mode: Stannum's eager mode saves the wrong tensors here (test_dropin_differences)."""
    batch, kernel = (layers.BatchDim, 3), square(lang64)
    tube = layers.Tube().register_input_tensor(batch, F64, "x")
    tube = tube.register_intermediate_field(batch, lang64.f64, "between", True)
    tube = tube.register_output_tensor(batch, F64, "y", True)
    tube = tube.register_kernel(kernel, ["x", "between"], name="a").register_kernel(kernel, ["between", "y"], name="b")
    x = make_leaf(2, 3)
    assert_agree(tube.finish()(x), x**4, [x])


# Calculators --------------------------------------------------------------------------------------
def by_class(layers):
    class OfValidLength(layers.DimensionCalculator):
        def calc_dimension(self, field_name, input_dimensions, input_tensor_shapes):
            return of_valid_length(field_name, input_dimensions, input_tensor_shapes)

    return OfValidLength()


@both_modes
@pytest.mark.parametrize("calculator", [lambda layers: of_valid_length, by_class], ids=["function", "class"])
def test_dims_of_an_output_are_calculated(layers, lang64, calculator, persistent):
    tube = layers.Tube(persistent_field=persistent)
    tube = tube.register_input_tensor((layers.AnyDim,), F64, "x").register_input_tensor((layers.AnyDim,), F64, "k")
    tube = tube.register_output_tensor(calculator(layers), F64, "y", True)
    tube = tube.register_kernel(convolution(lang64), ["x", "k", "y"]).finish()
    for sizes in ((5, 2), (4, 4)):
        x, k = (make_leaf(size) for size in sizes)
        assert_agree(tube(x, k), convolved(x, k), [x, k])


def test_calculators_receive_name_dims_and_shapes(layers, lang64):
    calls, dims = [], (2, layers.MatchDim("n"))

    def calculator(*arguments):
        calls.append(arguments)
        return (2, layers.MatchDim("n"))

    tube = layers.Tube().register_input_tensor(dims, F64, "x").register_output_tensor(calculator, F64, "y", True)
    tube = tube.register_intermediate_field(lambda *_: dims, lang64.f64, "between", True)
    tube = tube.register_kernel(square(lang64), ["x", "between"], name="a")
    tube = tube.register_kernel(square(lang64), ["between", "y"], name="b").finish()
    x = make_leaf(2, 3)
    assert_agree(tube(x), x**4, [x])
    [(name, registered, shapes), *_] = calls
    assert name == "y" and dict(registered) == {"x": dims}
    assert {name: tuple(shape) for name, shape in shapes.items()} == {"x": (2, 3)}


def test_a_calculator_says_none_for_the_batch(layers, lang64):
    tube = layers.Tube().register_input_tensor((layers.BatchDim, layers.AnyDim), F64, "x")
    tube = tube.register_output_tensor(lambda name, dims, shapes: (None, shapes["x"][1]), F64, "y", True)
    x = make_leaf(2, 3)
    assert_agree(tube.register_kernel(square(lang64), ["x", "y"]).finish()(x), x**2, [x])


# Several kernels and tensors ----------------------------------------------------------------------
@both_modes
def test_kernels_run_in_order_and_backwards_in_reverse(layers, lang64, persistent):
    @lang64.kernel
    def sine(x: lang64.template(), s: lang64.template()):
        for i in x:
            s[i] = lang64.sin(x[i])

    @lang64.kernel
    def product(s: lang64.template(), x: lang64.template(), y: lang64.template()):
        for i in s:
            y[i] = s[i] * x[i]

    n = layers.MatchDim("n")
    tube = layers.Tube(persistent_field=persistent).register_input_tensor((n,), F64, "x")
    tube = tube.register_intermediate_field((n,), lang64.f64, "between", needs_grad=True)
    tube = tube.register_output_tensor((n,), F64, "y", requires_grad=True)
    tube = tube.register_kernel(sine, ["x", "between"]).register_kernel(product, ["between", "x", "y"]).finish()
    x = make_leaf(3)
    assert_agree(tube(x), torch.sin(x) * x, [x])


def test_intermediates_without_a_gradient_pass_none(layers, lang64):
    @lang64.kernel
    def product(s: lang64.template(), x: lang64.template(), y: lang64.template()):
        for i in s:
            y[i] = s[i] * x[i]

    tube = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    tube = tube.register_intermediate_field((3,), lang64.f64, "s", False)
    tube = tube.register_kernel(square(lang64), ["x", "s"]).register_kernel(product, ["s", "x", "y"]).finish()
    x = make_leaf(3)
    assert_agree(tube(x), (x**2).detach() * x, [x])


def test_several_outputs_in_the_order_of_registration_one_without_a_gradient(layers, lang64):
    @lang64.kernel
    def both(a: lang64.template(), b: lang64.template(), p: lang64.template(), q: lang64.template()):
        for i in a:
            p[i] = a[i] * b[i]
            q[i] = a[i] - b[i]

    def tube(p_needs_one):
        made = layers.Tube().register_input_tensor((3,), F64, "b").register_input_tensor((3,), F64, "a")
        made = made.register_output_tensor((3,), F64, "q", True).register_output_tensor((3,), F64, "p", p_needs_one)
        return made.register_kernel(both, ["a", "b", "p", "q"]).finish()

    b, a = make_leaf(3), make_leaf(3)
    outputs = tube(True)(b, a)
    assert isinstance(outputs, tuple)
    assert_agree(outputs, (a - b, a * b), [a, b])
    q, p = tube(False)(b, a)
    assert not p.requires_grad
    torch.testing.assert_close(p, (a * b).detach())
    assert_agree(q, a - b, [a, b])


@pytest.mark.parametrize("requires_grad", [None, False, True])
def test_an_input_gets_a_gradient_where_it_is_registered_or_asked_for(layers, lang64, requires_grad):
    tube = layers.Tube().register_input_tensor((3,), F64, "w", requires_grad=requires_grad)
    tube = tube.register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    tube = tube.register_kernel(affine(lang64), ["w", "x", "y"], 1.0, 0.0).finish()
    w, x, cotangent = make_leaf(3), make_leaf(3), torch.randn(3, dtype=F64)
    tube(w, x).backward(cotangent)
    torch.testing.assert_close(x.grad, cotangent * w.detach())
    if requires_grad is False:
        assert w.grad is None or not w.grad.any()
    else:
        torch.testing.assert_close(w.grad, cotangent * x.detach())


def test_integers_are_inputs_without_a_gradient(layers, lang64):
    @lang64.kernel
    def picked(x: lang64.template(), index: lang64.template(), y: lang64.template()):
        for i in index:
            y[i] = 2.0 * x[index[i]]

    any_dim, n = layers.AnyDim, layers.MatchDim("n")
    tube = layers.Tube().register_input_tensor((any_dim,), F64, "x").register_input_tensor((n,), torch.int32, "index")
    tube = tube.register_output_tensor((n,), F64, "y", True).register_kernel(picked, ["x", "index", "y"]).finish()
    x, index = make_leaf(4), torch.tensor([3, 0, 3], dtype=torch.int32)
    assert_agree(tube(x, index), 2 * x[index], [x])


def test_nothing_requires_a_gradient_where_no_input_does(layers, lang64):
    tube = one_to_one(layers, lang64, (3,))
    assert not tube(torch.rand(3, dtype=F64)).requires_grad
    with torch.no_grad():
        assert not tube(make_leaf(3)).requires_grad


def test_a_tensor_of_another_dtype_is_converted(layers, lang64):
    tube, x = one_to_one(layers, lang64, (3,)), make_leaf(3, dtype=torch.float32)
    y = tube(x)
    assert y.dtype == F64
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    torch.testing.assert_close(tube(torch.arange(3)), torch.tensor([0.0, 1.0, 4.0], dtype=F64))


# Extra arguments ----------------------------------------------------------------------------------
@pytest.mark.parametrize("by_name", [True, False])
def test_extra_arguments_are_kept_until_set_again(layers, lang64, by_name):
    kernel = affine(lang64)
    tube = layers.Tube().register_input_tensor((3,), F64, "w").register_input_tensor((3,), F64, "x")
    tube = tube.register_output_tensor((3,), F64, "y", True).register_kernel(kernel, ["w", "x", "y"], 2.0, 1.0).finish()
    w, x = make_leaf(3), make_leaf(3)
    before = tube(w, x)
    tube.set_kernel_extra_args("affine" if by_name else kernel, -3.0, 0.5)
    assert_agree(tube(w, x), -3 * w * x + 0.5, [w, x])
    assert_agree(before, 2 * w * x + 1, [w, x])


def test_one_kernel_under_two_names_has_two_sets_of_extra_arguments(layers, lang64):
    kernel = affine(lang64)
    tube = layers.Tube().register_input_tensor((3,), F64, "w").register_input_tensor((3,), F64, "x")
    tube = tube.register_output_tensor((3,), F64, "y", True).register_intermediate_field((3,), lang64.f64, "s", True)
    tube = tube.register_kernel(kernel, ["w", "x", "s"], 2.0, 1.0)
    tube = tube.register_kernel(kernel, ["w", "s", "y"], 3.0, 4.0, name="again").finish()
    w, x = make_leaf(3), make_leaf(3)
    assert_agree(tube(w, x), 3 * w * (2 * w * x + 1) + 4, [w, x])
    tube.set_kernel_extra_args("again", 5.0, 0.0)
    assert_agree(tube(w, x), 5 * w * (2 * w * x + 1), [w, x])


# Complex ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.cfloat, torch.cdouble], ids=str)
def test_complex_tensors_are_fields_of_2_vectors(layers, lang64, dtype):
    tube = complex_product(layers, lang64, (3,), (3,), dtype)
    a, b = make_leaf(3, dtype=dtype), make_leaf(3, dtype=dtype)
    assert_agree(tube(a, b), a * b, [a, b])


@both_modes
def test_complex_tensors_in_a_batch(layers, lang64, persistent):
    tube = complex_product(layers, lang64, (layers.BatchDim, 3), (3,), torch.cdouble, persistent_field=persistent)
    a, b = make_leaf(2, 3, dtype=torch.cdouble), make_leaf(3, dtype=torch.cdouble)
    assert_agree(tube(a, b), a * b, [a, b])


def complex_product(layers, lang, dims, dims_of_b, dtype, **options):
    @lang.kernel
    def product(a: lang.template(), b: lang.template(), y: lang.template()):
        for i in a:
            y[i][0] = a[i][0] * b[i][0] - a[i][1] * b[i][1]
            y[i][1] = a[i][0] * b[i][1] + a[i][1] * b[i][0]

    tube = layers.Tube(**options).register_input_tensor(dims, dtype, "a").register_input_tensor(dims_of_b, dtype, "b")
    return tube.register_output_tensor(dims, dtype, "y", True).register_kernel(product, ["a", "b", "y"]).finish()


# Modes --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("persistent", [True, False])
def test_without_backward(layers, lang64, persistent):
    tube = one_to_one(layers, lang64, (3,), persistent_field=persistent, enable_backward=False)
    x = torch.randn(3, dtype=F64)
    y = tube(x)
    assert not y.requires_grad
    torch.testing.assert_close(y, x**2)


def test_on_a_device_that_is_named(layers, lang64):
    tube, x = one_to_one(layers, lang64, (3,), device=CPU), make_leaf(3)
    assert_agree(tube(x), x**2, [x])
