"""Pitfall 04: an output without requires_grad in the backward pass gives gradient 0.

Whether a tensor has an adjoint is compiled into the kernel from `requires_grad` at the launch; a
bridge that saves or allocates outputs without it gets silence (taichi #8339, #1966).
"""

import torch

import tinsmith as ts


def test_the_output_always_has_an_adjoint(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    values = torch.randn(5, dtype=torch.float64)
    with torch.no_grad():
        square(values)  # compiled first without any adjoint
    x = values.clone().requires_grad_()
    square(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * values)


def test_an_output_that_the_kernel_reads_again(lang64):
    @ts.op("x[n] -> y[n], z[n]")
    @lang64.kernel
    def twice(x: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]
        for i in x:
            z[i] = y[i] * x[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    twice(x).z.sum().backward()  # y has no incoming gradient, and passes one on all the same
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)
