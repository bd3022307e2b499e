"""Ops joined from kernels that do not share names, and arrays that let no gradient through."""

import pytest
import torch

import tinsmith as ts
from tinsmith.compiling import Links
from tinsmith.operation import OpOptions


def _kernels(lang):
    @lang.kernel
    def scale(x: lang.template(), y: lang.template(), by: lang.f64):
        for i in x:
            y[i] = x[i] * by

    @lang.kernel
    def square(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = x[i] * x[i]

    return scale, square


def _joined(lang, **options):
    """Build y = (x * by) ** 2 * again of three kernels, two of them the same."""
    scale, square = _kernels(lang)
    links = [
        Links({"x": "x", "y": "t", "by": "by"}, {}),
        Links({"x": "t", "y": "u"}, {}),
        Links({"x": "u", "y": "y", "by": "again"}, {}),
    ]
    kernels = [scale, square, scale]
    return ts.Op(kernels, "x[n] -> y[n]", OpOptions(scratch="t[n], u[n]", links=links, **options))


def test_a_kernel_may_occur_twice_in_a_chain(lang64):
    op = _joined(lang64)
    assert op.arguments == ("x", "by", "again")
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = op(x, 3.0, 0.5)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, 4.5 * x * x)
    torch.testing.assert_close(gradient, 9.0 * x)


def test_two_parameters_may_be_one_array(lang64):
    @lang64.kernel
    def product(a: lang64.template(), b: lang64.template(), out: lang64.template()):
        for i in a:
            out[i] = a[i] * b[i] + a[i]

    op = ts.Op([product], "x[n] -> y[n]", OpOptions(links=[Links({"a": "x", "b": "x", "out": "y"}, {})]))
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(op(x), x * x + x)
    assert torch.autograd.gradcheck(op, (x,))


def test_given_element_sizes_are_used(lang64):
    @lang64.kernel
    def first(p: lang64.template(), q: lang64.template()):
        for place in lang64.grouped(p):
            q[place] = p[place][0] * p[place]

    links = [Links({}, {"p": (2,), "q": (2,)})]
    op = ts.Op([first], "p[n, m, 2] -> q[n, m, 2]", OpOptions(links=links))
    p = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(op(p), p[..., :1] * p)
    assert torch.autograd.gradcheck(op, (p,))


def _detached_twin(x):
    t = 3.0 * x
    return (t.detach() ** 2 + t) * x


def _with_detached(lang, **options):
    @lang.kernel
    def first(x: lang.template(), t: lang.template(), u: lang.template()):
        for i in x:
            t[i] = 3.0 * x[i]
            u[i] = 3.0 * x[i]

    @lang.kernel
    def second(x: lang.template(), t: lang.template(), u: lang.template(), y: lang.template()):
        for i in x:
            y[i] = (t[i] * t[i] + u[i]) * x[i]

    return ts.Op([first, second], "x[n] -> y[n]", OpOptions(scratch="t[n], u[n]", detached=("t",), **options))


def _by_transform(op, x):
    return torch.func.grad(lambda value: op(value).sum())(x)


def _by_autograd(op, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(op(leaf).sum(), leaf)[0]


@pytest.mark.parametrize("gradient", [_by_autograd, _by_transform], ids=["autograd", "func"])
def test_detached_arrays_pass_no_gradient(lang64, gradient):
    x = torch.randn(6, dtype=torch.float64)
    torch.testing.assert_close(gradient(_with_detached(lang64), x), gradient(_detached_twin, x))


def _with_detached_output(lang):
    @lang.kernel
    def both(x: lang.template(), y: lang.template(), z: lang.template()):
        for i in x:
            y[i] = x[i] * x[i]
            z[i] = 2.0 * x[i]

    return ts.Op([both], "x[n] -> y[n], z[n]", OpOptions(detached=("z",)))


def test_a_detached_output_requires_no_gradient(lang64):
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    y, z = _with_detached_output(lang64)(x)
    assert y.requires_grad
    assert not z.requires_grad
    (gradient,) = torch.autograd.grad((y * z).sum(), x)
    torch.testing.assert_close(gradient, 2.0 * x * z)


def test_a_detached_output_has_no_gradient_under_transforms(lang64):
    op = _with_detached_output(lang64)
    x = torch.randn(4, dtype=torch.float64)
    gradient = torch.func.grad(lambda value: sum(part.sum() for part in op(value)))(x)
    torch.testing.assert_close(gradient, 2.0 * x)
    mapped = torch.vmap(torch.func.grad(lambda value: sum(part.sum() for part in op(value))))(x[:, None])
    torch.testing.assert_close(mapped, 2.0 * x[:, None])
