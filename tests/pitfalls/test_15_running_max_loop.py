"""Pitfall 15: a maximum carried by a loop; Taichi does not keep what it was (taichi #571)."""

import pytest

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def running(lang):
    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def running(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            m = -1e9
            for j in range(x.shape[1]):
                m = lang.max(m, x[i, j])
            y[i] = m

    return running


def swapped(lang):
    """Build the kernel of pitfall 15b."""

    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def swapped(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            m = -1e9
            for j in range(x.shape[1]):
                m = lang.max(x[i, j], m)
            y[i] = m

    return swapped


def twin(x):
    return x.amax(1)


@pytest.mark.parametrize("make", [running, swapped], ids=lambda make: make.__name__)
def test_a_running_maximum(lang64, draw, make):
    assert_right(make(lang64), twin, (draw(20, 7),))


def test_a_running_maximum_in_a_batch(lang64, draw):
    assert_right_in_a_batch(running(lang64), twin, (draw(3, 4, 7),))


def test_a_running_maximum_forwards(lang64, draw):
    assert_right_forwards(running(lang64), twin, (draw(20, 7),))
