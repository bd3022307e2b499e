"""An output that no loss uses takes no part in the gradient, not even where it is NaN."""

import pytest
import torch
from torch.func import grad, vmap

import tinsmith as ts

F64 = torch.float64


def make(lang, **options):
    """Build a kernel with two functions of a number: the first is NaN below 2, the second is not."""

    @lang.kernel
    def kernel(a: lang.types.ndarray(), axis: lang.types.ndarray(), inverse: lang.types.ndarray()):
        for i in a:
            axis[i] = lang.sqrt(a[i] - 2.0) * a[i]
            inverse[i] = 1.0 / (a[i] * a[i])

    return ts.op("a[n] -> axis[n], inverse[n]", **options)(kernel)


A = torch.tensor([1.0, 2.0, 3.0], dtype=F64)
WANTED = -2.0 / A**3


def test_gradient_of_the_other_output(lang64):
    op, a = make(lang64), A.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(op(a).inverse.sum(), a)
    torch.testing.assert_close(gradient, WANTED)


def test_the_output_that_is_used_may_change(lang64):
    op, a = make(lang64), (A + 2.0).requires_grad_()
    for used in ("axis", "inverse"):
        (gradient,) = torch.autograd.grad(getattr(op(a), used).sum(), a)
        twin = torch.sqrt(a - 2.0) * a if used == "axis" else a**-2
        torch.testing.assert_close(gradient, torch.autograd.grad(twin.sum(), a)[0])
    axis, inverse = op(a)
    (gradient,) = torch.autograd.grad((axis * inverse).sum(), a)
    torch.testing.assert_close(gradient, torch.autograd.grad((torch.sqrt(a - 2.0) * a * a**-2).sum(), a)[0])


def test_transforms(lang64):
    op = make(lang64)
    loss = lambda a: op(a).inverse.sum()  # noqa: E731
    torch.testing.assert_close(grad(loss)(A), WANTED)
    torch.testing.assert_close(vmap(grad(loss))(torch.stack([A, A])), torch.stack([WANTED, WANTED]))
    torch.testing.assert_close(torch.compile(grad(loss), backend="aot_eager")(A), WANTED)


def test_second_derivatives(lang64):
    op, a = make(lang64), A.clone().requires_grad_()
    (first,) = torch.autograd.grad(op(a).inverse.sum(), a, create_graph=True)
    torch.testing.assert_close(first, WANTED)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), a)[0], 6.0 / A**4)


def test_older_vmap(lang64):
    op, a = make(lang64), A.clone().requires_grad_()
    (jacobian,) = torch.autograd.grad(op(a).inverse, a, torch.eye(3, dtype=F64), is_grads_batched=True)
    torch.testing.assert_close(jacobian, torch.diag(WANTED))


def test_batch_dims_in_the_spec(lang64):
    @lang64.kernel
    def kernel(a: lang64.types.ndarray(), s: lang64.types.ndarray(), y: lang64.types.ndarray()):
        total = 0.0
        for i in a:
            total += a[i]
            y[i] = a[i] * a[i]
        for i in a:
            s[i] = lang64.sqrt(total - 7.0) * total

    op = ts.op("a[*b, n] -> s[*b, n], y[*b, n]")(kernel)
    a = torch.stack([A, A]).requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(op(a).y.sum(), a)[0], 2 * a.detach())


def test_an_unused_output_on_the_way_to_one_that_is_used(lang64):
    @lang64.kernel
    def kernel(a: lang64.types.ndarray(), between: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in a:
            between[i] = a[i] * a[i]
        for i in a:
            y[i] = between[i] * a[i]

    op, a = ts.op("a[n] -> between[n], y[n]")(kernel), A.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(op(a).y.sum(), a)[0], 3 * A**2)


def test_many_sets_of_outputs(lang64):
    """More sets than have a gradient of their own: the others are sums, and right as well."""

    @lang64.kernel
    def kernel(
        x: lang64.types.ndarray(),
        a: lang64.types.ndarray(),
        b: lang64.types.ndarray(),
        c: lang64.types.ndarray(),
        d: lang64.types.ndarray(),
        bad: lang64.types.ndarray(),
    ):
        for i in x:
            a[i] = x[i]
            b[i] = x[i] * x[i]
            c[i] = lang64.sin(x[i])
            d[i] = lang64.exp(x[i])
            bad[i] = lang64.sqrt(-x[i]) * x[i]

    op = ts.op("x[n] -> a[n], b[n], c[n], d[n], bad[n]")(kernel)
    slopes = [torch.ones_like(A), 2 * A, torch.cos(A), torch.exp(A)]
    for used in range(1, 16):
        x = A.clone().requires_grad_()
        places = [place for place in range(4) if used >> place & 1]
        outputs = op(x)
        (gradient,) = torch.autograd.grad(sum(outputs[place].sum() for place in places), x)
        torch.testing.assert_close(gradient, sum(slopes[place] for place in places))


@pytest.mark.compiled_engine
def test_the_engines_own_gradient_takes_zeros(lang64):
    op, a = make(lang64, adjoint="engine"), (A + 2.0).requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(op(a).inverse.sum(), a)[0], -2.0 / (A + 2.0) ** 3)
