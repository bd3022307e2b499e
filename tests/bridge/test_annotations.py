"""Annotations of functions that kernels call: what an engine converts, a gradient and the interpreter convert too."""

import pytest
import torch

import tinsmith as ts

F64 = torch.float64
SPEC = "x[n] -> y[n]"
on_quadrants = pytest.mark.parametrize("engine", ["quadrants"], indirect=True)


def check(kernel, reference, *, low=0.3, high=1.7):
    """Compare an op with a function of torch: as written, printed from its IR, over a batch, and its gradient."""
    x = low + (high - low) * torch.rand(6, dtype=F64)
    expected = reference(x)
    op = ts.op(SPEC, adjoint="source")(kernel)
    torch.testing.assert_close(op(x), expected)
    torch.testing.assert_close(ts.op(SPEC, check_bounds=True)(kernel)(x), expected)
    torch.testing.assert_close(torch.func.vmap(op)(x.expand(2, 6)), expected.expand(2, 6))
    own, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(op(own).sum(), own)
    torch.testing.assert_close(slope, torch.autograd.grad(reference(other).sum(), other)[0])


def test_python_types_of_parameters_convert(lang64):
    """The engines convert arguments of `int` and `float` parameters; IR took them as they were, in silence."""

    @lang64.func
    def doubled(a: int):
        return a * 2

    @lang64.func
    def quarter(a: float):
        return a / 4

    @lang64.func
    def rounded_down(a: lang64.i32):
        return a * 3

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2 + doubled(x[i] * 3) + quarter(i) + rounded_down(x[i] * 5)

    def reference(x):
        return x**2 + 2 * (x * 3).detach().trunc() + torch.arange(6) / 4 + 3 * (x * 5).detach().trunc()

    check(kernel, reference)


def test_matrices_keep_their_numbers(lang64):
    """A vector type of a parameter says how many numbers there are; no engine converts them."""

    @lang64.func
    def total(v: lang64.types.vector(2, lang64.i32)):
        return v.sum()

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = total(lang64.Vector([x[i], x[i] * 2]))

    check(kernel, lambda x: 3.0 * x)


def test_results_are_converted(lang64):
    @lang64.func
    def whole(a) -> lang64.i32:
        return a

    @lang64.func
    def python(a) -> int:
        return a

    @lang64.func
    def several(a) -> lang64.i32:
        return lang64.Vector([a * 3, a * 4])

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * whole(x[i] * 3) + python(x[i] * 5) + several(x[i]).sum()

    def reference(x):
        return x * (x * 3).detach().trunc() + sum((x * count).detach().trunc() for count in (5, 3, 4))

    check(kernel, reference)


@on_quadrants
@pytest.mark.parametrize("annotate", [lambda qd: qd.template, lambda qd: qd.template | None], ids=["class", "or None"])
def test_the_class_template_copies(lang64, annotate):
    """Quadrants takes a parameter that is annotated `template`, and not `template()`, by value."""
    annotation = annotate(lang64)

    @lang64.func
    def add(total: annotation, v):
        total += v
        return total

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            total = 1.0
            y[i] = add(total, x[i] ** 2) + 3.0 * total

    check(kernel, lambda x: 4.0 + x**2)


def test_real_functions_with_references(lang64):
    @lang64.real_func
    def grow(total: lang64.ref(lang64.f64), v: lang64.f64):
        total = total + v * v
        if v > 1.0:
            total += 1.0

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            total = 1.0
            grow(total, x[i])
            grow(total, 2.0 * x[i])
            y[i] = total

    check(kernel, lambda x: 1.0 + 5.0 * x**2 + (x > 1.0).to(F64) + (2.0 * x > 1.0).to(F64))
