"""Pitfall 64: a local vector rebuilt in a loop from its own components (quadrants #797)."""

import pytest
import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def as_vector(lang):
    @ts.op("x[n], k[1]: i32 -> y[n]")
    @lang.kernel
    def as_vector(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            v = lang.Vector([x[i], 0.5])
            for _ in range(k[0]):
                v = lang.Vector([v[0] * v[1], v[0] + x[i]])
            y[i] = v[0] + v[1]

    return as_vector


def as_scalars(lang):
    """Build the kernel of pitfall 64b."""

    @ts.op("x[n], k[1]: i32 -> y[n]")
    @lang.kernel
    def as_scalars(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            a = x[i]
            b = 0.5
            for _ in range(k[0]):
                t = a * b
                b = a + x[i]
                a = t
            y[i] = a + b

    return as_scalars


def component_by_component(lang):
    """Build the kernel of pitfall 64d."""

    @ts.op("x[n], k[1]: i32 -> y[n]")
    @lang.kernel
    def component_by_component(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            v = lang.Vector([x[i], 0.5])
            for _ in range(k[0]):
                a = v[0]
                v[0] *= v[1]
                v[1] = a + x[i]
            y[i] = v.sum()

    return component_by_component


def twin(x, k):
    a, b = x, torch.full_like(x, 0.5)
    for _ in range(int(k[0])):
        a, b = a * b, a + x
    return a + b


MAKERS = pytest.mark.parametrize(
    "make", [as_vector, as_scalars, component_by_component], ids=lambda make: make.__name__
)


def trips(*counts):
    return torch.tensor(counts, dtype=torch.int32)


@MAKERS
@pytest.mark.parametrize("count", [0, 3, 12])
def test_carried_by_a_loop(lang64, draw, make, count):
    assert_right(make(lang64), twin, (draw(9), trips(count)))


@MAKERS
def test_carried_by_a_loop_in_a_batch(lang64, draw, make):
    """The samples have trip counts of their own."""
    assert_right_in_a_batch(make(lang64), twin, (draw(3, 5), trips(2, 0, 5)[:, None]))


def constant(lang):
    """Build the kernel of pitfall 64c."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def constant(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            v = lang.Vector([x[i], 0.5])
            for _ in range(3):
                v = lang.Vector([v[0] * v[1], v[0] + x[i]])
            y[i] = v[0] + v[1]

    return constant


def test_a_constant_trip_count(lang64, draw):
    assert_right(constant(lang64), lambda x: twin(x, trips(3)), (draw(9),))


def test_a_constant_trip_count_forwards(lang64, draw):
    assert_right_forwards(constant(lang64), lambda x: twin(x, trips(3)), (draw(9),))


def test_a_matrix(lang64, draw):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def powers(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            m = lang64.Matrix([[1.0, x[i]], [0.0, 1.0]])
            for _ in range(5):
                m = m @ lang64.Matrix([[x[i], 0.3], [-0.2, lang64.cos(x[i])]])
            y[i] = m.trace() + m[0, 1] * m[1, 0]

    def twin(x):
        one, none = torch.ones_like(x), torch.zeros_like(x)
        m = torch.stack([one, x, none, one], -1).reshape(-1, 2, 2)
        step = torch.stack([x, 0.3 * one, -0.2 * one, torch.cos(x)], -1).reshape(-1, 2, 2)
        for _ in range(5):
            m = m @ step
        return m[:, 0, 0] + m[:, 1, 1] + m[:, 0, 1] * m[:, 1, 0]

    assert_right(powers, twin, (draw(9),))
