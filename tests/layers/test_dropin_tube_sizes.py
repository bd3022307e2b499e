"""Tube runs kernels that need the sizes of their arrays, or a flag, when they are compiled, as Stannum's does."""

import pytest
import torch

from support.dropin import assert_agree, make_leaf, side_by_side

pytestmark = [pytest.mark.thinned(6), side_by_side]

F64 = torch.float64


def tube(layers, kernel, dims=(3,), *extra_args):
    made = layers.Tube().register_input_tensor(dims, F64, "x").register_output_tensor(dims, F64, "y", True)
    return made.register_kernel(kernel, ["x", "y"], *extra_args).finish()


def static_loop(lang):
    @lang.kernel
    def of_static_loop(x: lang.template(), y: lang.template()):
        for i in x:
            for k in lang.static(range(x.shape[0])):
                y[i] += (k + 1) * x[i] * x[k]

    return of_static_loop


def static_if(lang):
    @lang.kernel
    def of_static_if(x: lang.template(), y: lang.template()):
        for i in x:
            if lang.static(x.shape[0] > 2 and len(x.shape) == 1):
                y[i] = x[i] * x[i]
            else:
                y[i] = -x[i]

    return of_static_if


def static_assert(lang):
    @lang.kernel
    def of_static_assert(x: lang.template(), y: lang.template()):
        lang.static_assert(x.shape == y.shape)
        for i in x:
            y[i] = x[i] * x[i]

    return of_static_assert


def local_vector(lang):
    @lang.kernel
    def of_local_vector(x: lang.template(), y: lang.template()):
        for i in x:
            powers = lang.Vector([0.0 for _ in range(x.shape[0])])
            for k in lang.static(range(x.shape[0])):
                powers[k] = x[i] * (k + 1)
            y[i] = powers.sum()

    return of_local_vector


def vector_of_zeros(lang):
    @lang.kernel
    def of_vector_of_zeros(x: lang.template(), y: lang.template()):
        for i in x:
            sums = lang.Vector.zero(lang.f64, x.shape[0])
            sums[0] = x[i] * x[i]
            y[i] = sums.sum()

    return of_vector_of_zeros


def static_dtype(lang):
    @lang.kernel
    def of_static_dtype(x: lang.template(), y: lang.template()):
        for i in x:
            if lang.static(x.dtype == lang.f64):
                y[i] = x[i] * x[i]
            else:
                y[i] = -x[i]

    return of_static_dtype


def in_a_function(lang):
    @lang.func
    def turned(field: lang.template(), i):
        result = field[i]
        if lang.static(field.shape[0] > 2):
            result = -field[i]
        return result

    @lang.kernel
    def of_function(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = turned(x, i)

    return of_function


def places(count):
    return torch.arange(1, count + 1, dtype=F64)


@pytest.mark.parametrize(
    ("kernel", "right"),
    [
        (static_loop, lambda x: x * (places(len(x)) * x).sum()),
        (static_if, lambda x: x**2 if len(x) > 2 else -x),
        (static_assert, lambda x: x**2),
        (local_vector, lambda x: x * places(len(x)).sum()),
        (vector_of_zeros, lambda x: x**2),
        (static_dtype, lambda x: x**2),
        (in_a_function, lambda x: -x if len(x) > 2 else x),
    ],
    ids=["static loop", "static if", "static assert", "local vector", "vector of zeros", "static dtype", "function"],
)
def test_kernels_that_need_sizes_when_they_are_compiled(layers, lang64, kernel, right):
    made = tube(layers, kernel(lang64), (layers.MatchDim("n"),))
    for size in (3, 2):
        x = make_leaf(size)
        assert_agree(made(x), right(x), [x])


def test_a_flag_as_extra_argument(layers, lang64):
    @lang64.kernel
    def flagged(x: lang64.template(), y: lang64.template(), flag: bool):
        for i in x:
            y[i] = x[i]
            if flag:
                y[i] = 2.0 * x[i]

    made, x = tube(layers, flagged, (3,), True), make_leaf(3)
    assert_agree(made(x), 2 * x, [x])
    made.set_kernel_extra_args("flagged", False)
    assert_agree(made(x), x, [x])
