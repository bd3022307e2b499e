"""Sizes that must be known at compilation: found in kernels and in functions that are given an array."""

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith.engines import of_kernel
from tinsmith.frontend import read, roles_of


def decided(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            if lang.static(x.shape[0] > 2):
                y[i] = x[i]

    return kernel


def counted(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in y:
            v = lang.Vector([0.0 for _ in range(x.shape[0])])
            y[i] = x[i] + v[0]

    return kernel


def in_a_function(lang):
    @lang.func
    def first(a: lang.template(), i):
        r = 0.0
        if lang.static(a.shape[0] == 3):
            r = a[i]
        return r

    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = first(x, i)

    return kernel


def ranks(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            for _ in lang.static(range(len(x.shape))):
                y[i] = x[i] * x.shape[0]

    return kernel


@pytest.mark.parametrize("make", [decided, counted, in_a_function])
def test_kernels_that_need_a_size_at_compile_time_are_refused(lang, make):
    kernel = make(lang)
    engine = of_kernel(kernel)
    roles = roles_of(read(engine.function_of(kernel)), ("x", "y"), engine)
    assert __file__ in roles["x"].static_size
    assert not roles["y"].static_size
    with pytest.raises(ts.KernelError, match=r"needs an array's size at compile time.*\n.*test_sizes.py"):
        ts.op("x[n] -> y[n]")(kernel)


def test_ranks_are_known_at_compile_time(lang64):
    op = ts.op("x[n] -> y[n]")(ranks(lang64))
    cases.assert_same_values_and_gradients(op, lambda x: x * 3, (torch.randn(3, dtype=torch.float64),))


@pytest.mark.parametrize("make", [decided, counted, in_a_function])
def test_a_tube_whose_kernel_needs_sizes_runs_on_fields(lang64, make):
    tube = (
        ts.Tube()
        .register_input_tensor((ts.MatchDim("n"),), torch.float64, "x")
        .register_output_tensor((ts.MatchDim("n"),), torch.float64, "y", True)
        .register_kernel(make(lang64), ["x", "y"])
        .finish()
    )
    assert "needs a tensor's size when it is compiled" in tube.explain("all")
    for n in (3, 4):
        x = torch.randn(n, dtype=torch.float64)
        wanted = (lambda x: x * 0) if make is in_a_function and n != 3 else (lambda x: x * 1)
        cases.assert_same_values_and_gradients(tube, wanted, (x,))


def test_parameters_may_be_annotated_as_bool(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def chosen(x: lang64.types.ndarray(), y: lang64.types.ndarray(), doubled: bool):
        for i in x:
            y[i] = 2.0 * x[i] if doubled else x[i]

    x = torch.randn(4, dtype=torch.float64)
    cases.assert_close(chosen(x, True), 2 * x)
    cases.assert_close(chosen(x, False), x)
