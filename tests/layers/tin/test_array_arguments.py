"""Kernels of a layer on fields that are given arrays: tensors and NumPy arrays, which are constants to the gradient."""

import resource
import warnings

import numpy as np
import pytest
import torch

import tinsmith as ts

N = 4
WAYS = {"fields": {}, "tensors": {"on_tensors": True}}
KINDS = {"torch": lambda values: values.clone(), "numpy": lambda values: values.numpy().copy()}


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64)


def make_layer(lang, kernels, **options):
    """Make y[i] = x[i] * a[i]; each of `kernels` continues with `y`."""
    x, y = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(2))

    @lang.kernel
    def scale(a: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] += x[i] * a[i]

    layer = ts.EmptyTin(**options).register_input_field(x, "x").register_output_field(y, "y")
    for place, array in enumerate(kernels):
        layer.register_kernel(scale, array, kernel_name=f"scale {place}")
    return layer.finish(), scale


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_launch_has_its_own_array(lang, way, kind):
    first, second, x, cotangent = rand(N), rand(N), rand(N).requires_grad_(), rand(N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that the gradient was not checked
        layer, _ = make_layer(lang, [KINDS[kind](first), KINDS[kind](second)], **WAYS[way])
        y = layer(x)
    torch.testing.assert_close(y, x * (first + second))
    torch.testing.assert_close(torch.autograd.grad(y, x, cotangent)[0], cotangent * (first + second))


@pytest.mark.parametrize("way", WAYS)
def test_arrays_of_another_size_may_follow(lang, way):
    x, wider = rand(N), rand(N + 3)
    layer, scale = make_layer(lang, [rand(N)], **WAYS[way])
    layer(x)
    layer.set_kernel_args("scale 0", wider)
    torch.testing.assert_close(layer(x), x * wider[:N])


@pytest.mark.parametrize("way", WAYS)
def test_a_numpy_array_that_changes_before_the_backward_pass(lang, way):
    """The backward pass takes the value that was used; the engine's own could not, and is refused."""
    array, x = rand(N).numpy(), rand(N).requires_grad_()
    layer, _ = make_layer(lang, [array], **WAYS[way])
    used = torch.from_numpy(array.copy())
    loss = layer(x).sum()
    array += 5.0
    loss.backward()
    torch.testing.assert_close(x.grad, used)


@pytest.mark.compiled_engine
def test_a_numpy_array_that_changes_before_the_engines_own_backward_pass(lang):
    array, x = rand(N).numpy(), rand(N).requires_grad_()
    layer, _ = make_layer(lang, [array], adjoint="engine")
    loss = layer(x).sum()
    array += 5.0
    with pytest.raises(ts.GradientError, match=r"array `a` of `EmptyTin.scale 0` changed between forward and back"):
        loss.backward()


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_an_array_beyond_an_index_is_refused(lang, kind):
    """Both engines end the process on it. All its elements are one in memory."""
    array = torch.zeros(1, dtype=torch.float64).expand(2**31)
    with pytest.raises(ts.ShapeError) as refused:
        make_layer(lang, [array.numpy() if kind == "numpy" else array])
    assert str(refused.value) == (
        "array argument `a` of `EmptyTin.scale 0` has more elements than an engine can index\n"
        "  shape     (2147483648,)\n"
        "  elements  2,147,483,648\n"
        "  at most   2,147,483,647\n"
        "Split the call: pass a part of the array at a time."
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_an_expanded_batch_beyond_an_index_is_refused_before_it_is_copied(lang64, dtype):
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    layer = ts.EmptyTin("cpu").register_input_field(x, batched=True).register_output_field(y)
    layer.register_kernel(double).finish()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ts.ShapeError, match="has more elements than an engine can index"):
        layer(torch.zeros(1, 4, dtype=dtype).expand(2**29, 4))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20


@pytest.mark.parametrize("way", WAYS)
def test_the_gradient_is_checked(lang, way):
    layer, _ = make_layer(lang, [np.ones(N)], **WAYS[way])
    assert ts.check(layer, rand(N)).verdict == "right"


def through_an_array(lang, kind):
    """Make y[i] = 2 x[i]^2 with one factor passed through an array, in one kernel or between two."""
    x, y = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(2))
    array = torch.zeros(N, dtype=torch.float64)

    @lang.kernel
    def both(a: lang.types.ndarray(ndim=1)):
        for i in x:
            a[i] = 2.0 * x[i]
            y[i] = a[i] * x[i]

    @lang.kernel
    def write(a: lang.types.ndarray(ndim=1)):
        for i in x:
            a[i] = 2.0 * x[i]

    @lang.kernel
    def read(a: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = a[i] * x[i]

    layer = ts.EmptyTin().register_input_field(x, "x").register_output_field(y, "y")
    for kernel in {"one": [both], "two": [write, read]}[kind]:
        layer.register_kernel(kernel, array)
    return layer.finish()


@pytest.mark.parametrize("kind", ["one", "two"])
def test_values_that_go_through_an_array_have_no_gradient(lang, kind):
    layer, x = through_an_array(lang, kind), rand(N)
    torch.testing.assert_close(layer(x), 2.0 * x * x)
    with pytest.raises(ts.GradientError, match="go through the array `a`.*which has no gradient"):
        layer(x.requires_grad_())


@pytest.mark.compiled_engine
@pytest.mark.filterwarnings("ignore:the gradient of EmptyTin is the engine's own")
def test_arrays_that_are_only_written_do_not_prevent_gradients(lang):
    x, y = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(2))
    total = torch.zeros(1, dtype=torch.float64)

    @lang.kernel
    def count(a: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i] * x[i]
            a[0] += x[i]

    layer = ts.EmptyTin().register_input_field(x, "x").register_output_field(y, "y").register_kernel(count, total)
    given = rand(N).requires_grad_()
    layer.finish()(given).sum().backward()
    torch.testing.assert_close(given.grad, 2.0 * given.detach())
    torch.testing.assert_close(total, given.detach().sum().reshape(1))


def test_arrays_of_vectors(lang):
    x, y = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(2))
    vectors = rand(N, 3)
    vec3 = lang.types.vector(3, lang.f64)

    @lang.kernel
    def squares(a: lang.types.ndarray(dtype=vec3, ndim=1)):
        for i in x:
            y[i] = x[i] * a[i].dot(a[i])

    given = rand(N).requires_grad_()
    for options in WAYS.values():
        layer = ts.EmptyTin(**options).register_input_field(x, "x").register_output_field(y, "y")
        result = layer.register_kernel(squares, vectors).finish()(given)
        (gradient,) = torch.autograd.grad(result.sum(), given)
        torch.testing.assert_close(gradient, (vectors * vectors).sum(1))
