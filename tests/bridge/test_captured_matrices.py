"""Vectors and matrices that a kernel captures: their methods are the language's functions."""

import torch

import cases
import tinsmith as ts


def test_methods_of_captured_vectors_and_matrices(lang64):
    axis = lang64.Vector([3.0, 4.0, 0.0])
    turn = lang64.Matrix([[0.0, -1.0], [1.0, 2.0]])

    @ts.op("x[n] -> y[n]", adjoint="source")
    @lang64.kernel
    def used(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            v = lang64.Vector([x[i], 1.0, 2.0])
            y[i] = axis.norm() * x[i] + axis.normalized()[1] + axis.dot(v) + axis.xy.sum()
            y[i] += turn.determinant() * turn.transpose()[0, 1] * x[i] + turn.trace() + (turn @ v.xy)[1]

    def expected(x):
        return 5 * x + 0.8 + (3 * x + 4) + 7 + 1 * 1 * x + 2 + (x + 2)

    cases.assert_same_values_and_gradients(used, expected, (torch.rand(5, dtype=torch.float64),))


def test_functions_of_the_class(lang64):
    @ts.op("x[n, 3] -> y[n]", adjoint="source")
    @lang64.kernel
    def used(x: lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=1), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.Vector.norm(x[i]) + lang64.Vector.normalized(x[i], 1e-9)[0]

    def expected(x):
        norm = x.norm(dim=-1)
        return norm + x[:, 0] / (norm + 1e-9)

    cases.assert_same_values_and_gradients(used, expected, (torch.rand(5, 3, dtype=torch.float64) + 0.2,))


def test_conversions_of_captured_vectors(lang64):
    """Python's own conversions: engines apply them to each number."""
    links = [lang64.Vector(pair) for pair in ((1, 0), (0, 2), (3, 4))]

    @ts.op("x[n] -> y[n]", adjoint="source")
    @lang64.kernel
    def used(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            for link in lang64.static(links):
                y[i] += x[i] * x[i] * float(link).norm() + int(link).sum()

    cases.assert_same_values_and_gradients(used, lambda x: 8 * x**2 + 10, (torch.rand(5, dtype=torch.float64),))


def test_ranges_that_python_makes(lang64):
    """A captured `ndrange`, also grouped in the kernel: then its indices are vectors."""
    captured, stencil = lang64.ndrange(2, (1, 3)), lang64.ndrange(2, 2)

    @ts.op("x[n] -> y[n]", adjoint="source")
    @lang64.kernel
    def used(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            for offset in lang64.static(lang64.grouped(stencil)):
                y[i] += x[i] * x[i] * offset.cast(float).sum()
            for offset in lang64.static(lang64.grouped(captured)):
                y[i] += x[i] * offset.norm_sqr()
            for j, k in lang64.static(captured):
                y[i] += j * k * x[i]

    # sums over the indices: 0 + 1 + 1 + 2, then (0 + 1) + (0 + 4) + (1 + 1) + (1 + 4), then 1 + 2
    cases.assert_same_values_and_gradients(used, lambda x: 4 * x**2 + 15 * x, (torch.rand(5, dtype=torch.float64),))
