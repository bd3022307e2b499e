"""Pitfall 52: one tensor for two arguments (taichi #2505).

For an input and an output it cannot happen: an op makes its outputs. For two inputs the gradient
is the sum of both, also when the two only overlap.
"""

import torch

import tinsmith as ts


def product(lang):
    @ts.op("a[n], b[n] -> y[n]")
    @lang.kernel
    def product(a: lang.types.ndarray(), b: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in a:
            y[i] = a[i] * a[i] * b[i]

    return product


def test_the_same_tensor_twice(lang64):
    op = product(lang64)
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    op(x, x).sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_overlapping_views(lang64):
    op = product(lang64)
    x, twin = (torch.linspace(-1, 2, 7, dtype=torch.float64).requires_grad_() for _ in range(2))
    op(x[:5], x[2:]).sum().backward()
    (twin[:5] ** 2 * twin[2:]).sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)


def test_an_output_fed_back_as_input(lang64):
    op = product(lang64)
    x, twin = (torch.linspace(-1, 2, 5, dtype=torch.float64).requires_grad_() for _ in range(2))
    y = op(x, x)
    op(y, x).sum().backward()
    (twin**3 * twin**3 * twin).sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)
