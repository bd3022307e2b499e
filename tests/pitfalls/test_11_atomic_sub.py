"""Pitfall 11: what is taken away has gradient -1."""

import tinsmith as ts
from support.right import assert_right, assert_right_in_a_batch


def less(lang):
    @ts.op("x[n] -> y[1]")
    @lang.kernel
    def less(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[0] -= x[i] * x[i]

    return less


def twin(x):
    return -(x * x).sum(0, keepdim=True)


def test_a_difference(lang64, draw):
    assert_right(less(lang64), twin, (draw(40),))


def test_a_difference_for_every_sample(lang64, draw):
    assert_right_in_a_batch(less(lang64), twin, (draw(3, 7),))


def test_by_the_function(lang64, draw):
    @ts.op("x[n] -> y[1]")
    @lang64.kernel
    def less_still(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            lang64.atomic_sub(y[0], x[i] * x[i])

    assert_right(less_still, twin, (draw(40),))
