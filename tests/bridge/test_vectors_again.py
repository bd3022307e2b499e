"""A local vector that is given another one after an inner loop: engines keep numbers of the first."""

import torch

import cases
import tinsmith as ts


def test_elements_of_two_arrays_in_one_local(lang64):
    vec2 = lang64.types.vector(2, lang64.f64)
    vectors = lang64.types.ndarray(dtype=vec2, ndim=1)

    @ts.op("a[n, 2], b[n, 2] -> y[n]")
    @lang64.kernel
    def both(a: vectors, b: vectors, y: lang64.types.ndarray()):
        for i in range(y.shape[0]):
            v = a[i]
            p = v[0]
            s = 0.0
            for _ in range(1):
                s += p
            v = b[i]
            p = v[0]
            y[i] = s * 10.0 + p

    inputs = torch.rand(5, 2, dtype=torch.float64), torch.rand(5, 2, dtype=torch.float64)
    cases.assert_same_values_and_gradients(both, lambda a, b: 10 * a[:, 0] + b[:, 0], inputs)


def test_vectors_without_dims(lang64):
    vec2 = lang64.types.vector(2, lang64.f64)
    alone = lang64.types.ndarray(dtype=vec2, ndim=0)

    @ts.op("a[2], b[2] -> y[h]")
    @lang64.kernel
    def both(a: alone, b: alone, y: lang64.types.ndarray()):
        for i in range(y.shape[0]):
            s = 0.5
            v = a[None]
            p = v[0] * v[1] + v[0]
            for j in range(2):
                s = lang64.tanh(s * 0.8 + p * (j + 1))
            v = b[None]
            p = v[0] * v[1] + v[0]
            y[i] = s * p + p * p

    def expected(a, b):
        p, q = a[0] * a[1] + a[0], b[0] * b[1] + b[0]
        s = (0.8 * (0.4 + p).tanh() + 2 * p).tanh()
        return (s * q + q * q).expand(3)

    inputs = torch.rand(2, dtype=torch.float64), torch.rand(2, dtype=torch.float64)
    cases.assert_same_values_and_gradients(lambda a, b: both(a, b, h=3), expected, inputs)
