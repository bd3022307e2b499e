"""vmap of kernels that are hard to rewrite: right whichever way the bridge takes, and it says which.

The rows of the table are mapped in test_contract_func.py.
"""

import pytest
import torch
from torch.func import vmap

import cases
import tinsmith as ts

VECTOR = cases.Draw(torch.float64)(4, 5)


def serial_loop(lang):
    @lang.kernel
    def serial_loop(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            for j in range(i + 1):
                y[i] += x[j] * x[j]

    return serial_loop, lambda x: (x * x).cumsum(-1)


def array_into_function(lang):
    @lang.func
    def squared(array: lang.template(), i):
        return array[i] * array[i]

    @lang.kernel
    def array_into_function(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = squared(x, i)

    return array_into_function, lambda x: x * x


def bound_in_a_local(lang):
    @lang.kernel
    def bound_in_a_local(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            last = x.shape[0] - 1
            y[last - i] = x[i] * x[last - i]

    return bound_in_a_local, lambda x: x * x.flip(-1)


def static_at_the_top(lang):
    @lang.kernel
    def static_at_the_top(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for k in lang.static(range(2)):
            for i in x:
                y[i] += (k + 1) * x[i] * x[i]

    return static_at_the_top, lambda x: 3.0 * x * x


def statements_alone(lang):
    @lang.kernel
    def statements_alone(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        y[0] = x[1] * x[1]
        y[1] = x[0] * x[1]

    return statements_alone, lambda x: torch.stack([x[1] ** 2, x[0] * x[1], *x.new_zeros(len(x) - 2)])


def shadowed_name(lang):
    """Build a kernel with the names `b`, `batch` and `_b`, which a rewriting might want for itself."""

    @lang.kernel
    def shadowed_name(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for batch in x:
            b = x[batch]
            _b = b * b
            y[batch] = _b * b

    return shadowed_name, lambda x: x**3


HARD = [serial_loop, array_into_function, bound_in_a_local, static_at_the_top, statements_alone, shadowed_name]


@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
def test_a_kernel_hard_to_rewrite_maps_all_the_same(lang64, make):
    kernel, twin = make(lang64)
    op = ts.op("x[n] -> y[n]")(kernel)
    cases.assert_same_values_and_gradients(vmap(op), lambda x: torch.stack([twin(row) for row in x]), (VECTOR,))


@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
def test_batch_dims_in_the_spec_of_a_kernel_hard_to_rewrite(lang64, make):
    """`*b` promises one launch: where that cannot be had, the op is right all the same, or says so early."""
    kernel, twin = make(lang64)
    op = ts.op("x[*b, n] -> y[*b, n]")(kernel)
    cases.assert_same_values_and_gradients(op, lambda x: torch.stack([twin(row) for row in x]), (VECTOR,))
    cases.assert_close(op(VECTOR[None, :, None])[0, :, 0], torch.stack([twin(row) for row in VECTOR]))


def test_explain_says_how_a_mapped_call_is_launched(lang64):
    easy = cases.select_cases("convolution")[0].raw_op(lang64, torch.float64)
    assert "one launch" in easy.explain("all").lower()
