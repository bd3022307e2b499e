"""Loops whose body changes their variable: it is a local there, as in Python, where engines leave the change out."""

import pytest
import torch

import cases
import tinsmith as ts


def added_in_place(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(3):
                j += 2
                s += x[i] ** j
            y[i] = s

    return kernel


def assigned(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for i in x:
            s = 0.0
            for j in range(1, 4):
                j = 2 * j
                s += x[i] ** j
            y[i] = s

    return kernel


def in_a_function(lang, array):
    @lang.func
    def powers(v):
        s = 0.0
        for j in range(3):
            if j == 1:
                j = 5
            s += v**j
        return s

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            y[i] = powers(x[i])

    return kernel


def two_dims(lang, array):
    @lang.kernel
    def kernel(x: array, y: array):
        for _ in range(1):
            for i, j in lang.ndrange(x.shape[0], 2):
                j += 1
                y[i] += x[i] ** (j + 1)

    return kernel


TWINS = {
    added_in_place: lambda x: x**2 + x**3 + x**4,
    assigned: lambda x: x**2 + x**4 + x**6,
    in_a_function: lambda x: 1 + x**5 + x**2,
    two_dims: lambda x: x**2 + x**3,
}


@pytest.mark.parametrize("make", TWINS)
def test_assignments_to_loop_variables_take_effect(lang64, make):
    op = ts.op("x[n] -> y[n]")(make(lang64, lang64.types.ndarray()))
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    ours, theirs = op(x), TWINS[make](x)
    cases.assert_close(ours, theirs)
    seeds = torch.randn(5, dtype=torch.float64)
    cases.assert_close(torch.autograd.grad(ours, x, seeds), torch.autograd.grad(theirs, x, seeds))
    batch = torch.rand(2, 5, dtype=torch.float64)
    cases.assert_close(torch.func.vmap(op)(batch), TWINS[make](batch))


def test_the_variable_of_a_loop_over_an_array(lang64):
    """On one thread: iterations meet."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        lang64.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i] = x[i]
            i = x.shape[0] - 1 - i
            y[i] += x[i] * x[i]

    op = ts.op("x[n] -> y[n]")(kernel)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    y = op(x)
    late = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)  # of the others, the sum is overwritten
    cases.assert_close(y, x + late * x * x)
    y.sum().backward()
    cases.assert_close(x.grad, 1 + 2 * late * x.detach())


@pytest.mark.compiled_engine
def test_the_engine_s_own_gradient_is_refused(lang64):
    op = ts.op("x[n] -> y[n]", adjoint="engine")(added_in_place(lang64, lang64.types.ndarray()))
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    cases.assert_close(op(x.detach()), TWINS[added_in_place](x.detach()))
    with pytest.raises(
        ts.GradientError, match=("ignores the assignment to the loop variable at .*changed_loop_variables.py:16")
    ):
        op(x).sum().backward()


@pytest.mark.compiled_engine
def test_functions_that_change_a_loop_variable_are_refused(lang64):
    @lang64.func
    def up(n: lang64.template()):
        n += 1

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            for j in range(2):
                up(j)
                y[i] += x[i] * j

    op = ts.op("x[n] -> y[n]")(kernel)
    with pytest.raises(ts.KernelError, match="op `kernel` cannot change a loop variable"):
        op(torch.rand(3, dtype=torch.float64))
