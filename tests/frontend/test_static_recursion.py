"""Functions that call themselves, and end while the kernel is compiled, under `static`: followed by every analysis."""

import re

import pytest
import torch
from torch.func import jvp

import tinsmith as ts


def _horner(lang):
    @lang.func
    def horner(v, n: lang.template()):
        r = 0.0
        if lang.static(n > 0):
            r = horner(v, n - 1) * v + 1.0
        return r

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = horner(x[i], 4)

    return kernel, lambda x: ((x + 1) * x + 1) * x + 1


def _twice(lang):
    """Build a function that calls itself twice: 2**16 calls would be far too many to visit."""

    @lang.func
    def fibonacci(v, n: lang.template()):
        r = v
        if lang.static(n > 1):
            r = fibonacci(v, n - 1) + v * fibonacci(v, n - 2)
        return r

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = fibonacci(x[i], 4)

    return kernel, lambda x: x + 3 * x**2 + x**3


def _mutual(lang):
    @lang.func
    def even(v, n: lang.template()):
        r = v
        if lang.static(n > 0):
            r = v * odd(v, n - 1)
        return r

    @lang.func
    def odd(v, n: lang.template()):
        r = 2.0 * v
        if lang.static(n > 0):
            r = v + even(v, n - 1)
        return r

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = even(x[i], 3)

    return kernel, lambda x: x * (x + x * 2 * x)


def _method(lang):
    """Build methods of objects that refer to each other in a circle."""

    @lang.data_oriented
    class Link:
        def __init__(self, factor):
            self.factor = factor
            self.other = self

        @lang.func
        def times(self, v, n: lang.template()):
            r = self.factor * v
            if lang.static(n > 0):
                r = self.other.times(v, n - 1) * v
            return r

        @lang.kernel
        def kernel(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.times(x[i], 3)

    first, second = Link(2.0), Link(3.0)
    first.other, second.other = second, first
    return first.kernel, lambda x: 3.0 * x**4


def _reading(lang):
    @lang.func
    def total(x: lang.template(), i, n: lang.template()):
        r = 0.0
        if lang.static(n > 0):
            r = total(x, i, n - 1) * x[i] + x[n]
        return r

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = total(x, i, 3)

    return kernel, lambda x: ((x[1] * x + x[2]) * x) + x[3]


def _writing(lang):
    @lang.func
    def add(y: lang.template(), i, v, n: lang.template()):
        y[i] += v
        if lang.static(n > 0):
            add(y, i, v * v, n - 1)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            add(y, i, x[i], 2)

    return kernel, lambda x: x + x**2 + x**4


@pytest.mark.parametrize("make", [_horner, _twice, _mutual, _method, _reading, _writing])
def test_op(lang64, make):
    kernel, reference = make(lang64)
    op = ts.op("x[n] -> y[n]", adjoint="source")(kernel)
    x = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64, requires_grad=True)
    cotangent = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    torch.testing.assert_close(op(x), reference(x))
    given, wanted = (torch.autograd.grad(one(x), x, cotangent) for one in (op, reference))
    torch.testing.assert_close(given, wanted)
    given, wanted = (jvp(one, (x.detach(),), (cotangent,)) for one in (op, reference))
    torch.testing.assert_close(given, wanted)
    assert not [one for one in op.lint() if one.severity == "error"]


def test_fields_of_functions(lang64):
    """Two functions that call each other: each is handed the other's field too."""
    lang = lang64
    f, g = (lang.field(lang.f64, shape=4, needs_grad=True) for _ in range(2))
    y = lang.field(lang.f64, shape=4, needs_grad=True)

    @lang.func
    def one(i, n: lang.template()):
        r = 0.0
        if lang.static(n > 0):
            r = two(i, n - 1) * f[i] + 1.0
        return r

    @lang.func
    def two(i, n: lang.template()):
        r = 1.0
        if lang.static(n > 0):
            r = one(i, n - 1) * g[i]
        return r

    @lang.kernel
    def kernel():
        for i in y:
            y[i] = one(i, 3)

    assert not ts.lint(kernel)
    tin = ts.EmptyTin(torch.device("cpu")).register_kernel(kernel).register_input_field(f)
    tin = tin.register_input_field(g).register_output_field(y).finish()
    a, b = (torch.rand(4, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def reference(a, b):
        return (a + 1.0) * b * a + 1.0

    torch.testing.assert_close(tin(a, b), reference(a, b))
    given, wanted = (torch.autograd.grad(run(a, b).sum(), (a, b)) for run in (tin, reference))
    torch.testing.assert_close(given, wanted)


def test_a_recursion_without_an_end_is_refused(lang):
    @lang.func
    def first(v):
        return second(v) * v

    @lang.func
    def second(v):
        r = v
        if v > 0.5:
            r = first(v)  # again
        return r

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = first(x[i])

    with pytest.raises(ts.KernelError) as caught:
        ts.op("x[n] -> y[n]")(kernel)(torch.rand(3))
    with open(__file__) as file:
        line = next(number for number, text in enumerate(file, 1) if text.rstrip().endswith("# again"))
    words = str(caught.value)
    assert "function `first` calls itself without end while the kernel is compiled" in words
    assert f"{__file__}:{line}" in words and re.search(r"`if (ti|qd)\.static\(\.\.\.\)`", words)
