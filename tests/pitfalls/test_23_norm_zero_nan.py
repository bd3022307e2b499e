"""Pitfall 23: the length of a vector has a NaN gradient at 0 on the engines; torch takes 0 (taichi #4332)."""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def length(lang):
    @ts.op("x[n, 3] -> y[n]")
    @lang.kernel
    def length(x: lang.types.ndarray(dtype=lang.types.vector(3, lang.f64), ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i].norm()

    return length


def twin(x):
    return torch.linalg.vector_norm(x, dim=-1)


def with_zeros(x):
    x[..., ::3, :] = 0.0
    return x


def test_lengths(lang64, draw):
    assert_right(length(lang64), twin, (with_zeros(draw(9, 3)),))


def test_lengths_in_a_batch(lang64, draw):
    assert_right_in_a_batch(length(lang64), twin, (with_zeros(draw(3, 5, 3)),))


def test_lengths_forwards(lang64, draw):
    assert_right_forwards(length(lang64), twin, (with_zeros(draw(9, 3)),))


def test_distances(lang64, draw):
    @ts.op("x[n, 3], k[n, 3] -> y[n]")
    @lang64.kernel
    def distance(
        x: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1),
        k: lang64.types.ndarray(dtype=lang64.math.vec3, ndim=1),
        y: lang64.types.ndarray(ndim=1),
    ):
        for i in x:
            y[i] = lang64.math.distance(x[i], k[i]) + lang64.math.length(k[i])

    x = draw(9, 3)
    k = torch.where(torch.arange(9)[:, None] % 3 == 0, x, draw(9, 3))
    assert_right(distance, lambda x, k: twin(x - k) + twin(k), (x, k))
