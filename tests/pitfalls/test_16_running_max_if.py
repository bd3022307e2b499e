"""Pitfall 16: a maximum carried by a loop, written with an `if` (taichi #571)."""

import tinsmith as ts
from support.right import assert_right, assert_right_in_a_batch


def running(lang):
    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def running(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            m = -1e9
            for j in range(x.shape[1]):
                if x[i, j] > m:
                    m = x[i, j]
            y[i] = m

    return running


def test_a_running_maximum(lang64, draw):
    assert_right(running(lang64), lambda x: x.amax(1), (draw(20, 7),))


def test_a_running_maximum_in_a_batch(lang64, draw):
    assert_right_in_a_batch(running(lang64), lambda x: x.amax(1), (draw(3, 4, 7),))
