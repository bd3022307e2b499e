"""Gradients that stand under an engine's `grad_replaced` and `grad_for`."""

import pickle

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith.engines import of_kernel


def kernels(lang):
    @lang.kernel
    def cube(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3 * w[i]

    @lang.kernel
    def cube_grad(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            x.grad[i] += 10.0 * x[i] * y.grad[i]  # its author's, and not the derivative
            w.grad[i] = x[i] * y.grad[i]

    return cube, cube_grad


def decorated(lang):
    """Return the decorated kernels themselves."""
    cube, cube_grad = kernels(lang)
    function = lang.ad.grad_replaced(cube)
    lang.ad.grad_for(function)(cube_grad)
    return function


def called(lang):
    """Build functions that call the kernels, as the engines' documentation writes them."""
    cube, cube_grad = kernels(lang)

    @lang.ad.grad_replaced
    def run(x, w, y):
        """Call it."""
        cube(x, w, y)

    @lang.ad.grad_for(run)
    def run_grad(x, w, y):
        cube_grad(x, w, y)

    return run


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [decorated, called])
def test_the_gradient_is_the_authors(lang, make, dtype):
    op = ts.op("x[n], w[n] -> y[n]")(make(lang))
    x, w = (torch.rand(5, dtype=dtype).requires_grad_() for _ in range(2))
    y = op(x, w)
    cases.assert_close(y, x**3 * w)
    cotangent = torch.rand(5, dtype=dtype)
    gradients = torch.autograd.grad(y, (x, w), cotangent)
    cases.assert_close(gradients, (10 * x * cotangent, x * cotangent))
    many = torch.func.vmap(torch.func.grad(lambda one: op(one, w.detach()).sum()))(torch.stack([x, 2 * x]).detach())
    cases.assert_close(many, 10 * torch.stack([x, 2 * x]))
    compiled = torch.compile(lambda *given: op(*given), backend="aot_eager", fullgraph=True)
    cases.assert_close(torch.autograd.grad(compiled(x, w), (x, w), cotangent), gradients)


def test_the_kernel_itself_keeps_its_derivative(lang64):
    cube, _ = kernels(lang64)
    x, w = (torch.rand(5, dtype=torch.float64).requires_grad_() for _ in range(2))
    op = ts.op("x[n], w[n] -> y[n]")(cube)
    cases.assert_close(torch.autograd.grad(op(x, w).sum(), (x, w)), (3 * x**2 * w, x**3))


def test_names_of_gradients_are_reserved(lang64):
    cube, _ = kernels(lang64)

    @lang64.kernel
    def cube_grad(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            grad_x = 10.0 * x[i]  # here
            x.grad[i] += grad_x * y.grad[i]

    function = lang64.ad.grad_replaced(cube)
    lang64.ad.grad_for(function)(cube_grad)
    with pytest.raises(ts.KernelError) as caught:
        ts.op("x[n], w[n] -> y[n]")(function)
    line = of_kernel(cube_grad).function_of(cube_grad).__code__.co_firstlineno + 3
    for words in ("`grad_x` is the name of the gradient of `x`", f"{__file__}:{line}\n", "another name"):
        assert words in str(caught.value)


def test_derivatives_that_the_author_did_not_write_are_refused(lang64):
    op = ts.op("x[n], w[n] -> y[n]")(decorated(lang64))
    x, w = torch.rand(5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    with pytest.raises(ts.GradientError, match="without `grad_replaced`"):
        torch.func.jvp(op, (x, w), (x, w))


def test_refusals(lang):
    make = ts.op("x[n], w[n] -> y[n]")
    cube, cube_grad = kernels(lang)
    function = lang.ad.grad_replaced(cube)
    with pytest.raises(
        ts.ArgumentError, match="(?s)`cube` is replaced, but no replacement is defined yet.*Make the op after"
    ):
        make(function)
    lang.ad.grad_for(function)(cube_grad)
    with pytest.raises(ts.ArgumentError, match="`cube` has two gradients"):
        ts.op("x[n], w[n] -> y[n]", backward=cube_grad)(function)
    with pytest.raises(
        pickle.PicklingError, match="op `cube` is made of a function whose gradient `grad_for` replaces"
    ):
        pickle.dumps(make(function))

    @lang.ad.grad_replaced
    def twice(x, w, y):
        cube(x, w, y)
        cube(x, w, y)

    lang.ad.grad_for(twice)(cube_grad)
    with pytest.raises(ts.KernelError, match=r"(?s)`twice`.*does more than call one kernel.*replaced.py:\d"):
        make(twice)

    @lang.ad.grad_replaced
    def empty(x, w, y):
        """Do nothing."""

    lang.ad.grad_for(empty)(cube_grad)
    with pytest.raises(ts.KernelError, match=r"(?s)`empty`.*does more than call one kernel.*replaced.py:\d"):
        make(empty)

    @lang.ad.grad_replaced
    def swapped(x, w, y):
        cube(w, x, y)

    lang.ad.grad_for(swapped)(cube_grad)
    with pytest.raises(ts.KernelError, match="does more than call one kernel"):
        make(swapped)

    @lang.ad.grad_replaced
    def called_otherwise(a, w, y):
        cube(a, w, y)

    lang.ad.grad_for(called_otherwise)(cube_grad)
    with pytest.raises(ts.KernelError, match="(?s)and of its kernel have different names.*x, w, y.*by name"):
        make(called_otherwise)


def test_a_backward_kernel_with_a_parameter_that_it_does_not_use(lang64):
    """In a batch `w` was given memory of its gradient, with one more dim, and the process ended."""
    cube, _ = kernels(lang64)

    @lang64.kernel
    def backward(
        x: lang64.types.ndarray(),
        w: lang64.types.ndarray(),
        grad_y: lang64.types.ndarray(),
        grad_x: lang64.types.ndarray(),
        grad_w: lang64.types.ndarray(),
    ):
        for i in x:
            grad_x[i] += grad_y[i]
            grad_w[i] = x[i] * grad_y[i]

    op = ts.op("x[n], w[n] -> y[n]", backward=backward)(cube)
    x, w = torch.rand(3, 5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    both = torch.func.vmap(torch.func.grad(lambda *given: op(*given).sum(), argnums=(0, 1)), in_dims=(0, None))(x, w)
    for gradient, expected in zip(both, (torch.ones_like(x), x), strict=True):
        cases.assert_close(gradient, expected)


def owner_class(lang):
    """Return a data-oriented class with both forms as methods: a function that calls a kernel, and a kernel."""

    @lang.data_oriented
    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        @lang.kernel
        def cube(self, x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i] ** 3 * w[i]

        @lang.kernel
        def cube_grad(self, x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                x.grad[i] += 10.0 * self.factor * x[i] * y.grad[i]
                w.grad[i] = x[i] * y.grad[i]

        @lang.ad.grad_replaced
        def called(self, x, w, y):
            self.cube(x, w, y)

        @lang.ad.grad_for(called)
        def called_grad(self, x, w, y):
            self.cube_grad(x, w, y)

        decorated = lang.ad.grad_replaced(cube)
        lang.ad.grad_for(decorated)(cube_grad)

    return Scaled


@pytest.mark.parametrize("name", ["called", "decorated"])
def test_methods(lang64, name):
    scaled = owner_class(lang64)
    x, w = (torch.rand(5, dtype=torch.float64).requires_grad_() for _ in range(2))
    cotangent = torch.rand(5, dtype=torch.float64)
    for factor in (2.0, 3.0):
        op = ts.op("x[n], w[n] -> y[n]")(getattr(scaled(factor), name))
        cases.assert_close(op(x, w), factor * x**3 * w)
        gradients = torch.autograd.grad(op(x, w), (x, w), cotangent)
        cases.assert_close(gradients, (10 * factor * x * cotangent, x * cotangent))


@pytest.mark.parametrize("name", ["called", "decorated"])
def test_a_method_without_its_object_is_refused(lang, name):
    with pytest.raises(ts.ArgumentError, match=r"is a method.*\n.*bound method: ts.op\(spec\)\(owner\."):
        ts.op("x[n], w[n] -> y[n]")(getattr(owner_class(lang), name))
