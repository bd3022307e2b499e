"""Chains in which a kernel is listed more than once, and ops in the place of kernels."""

import pytest
import torch

import cases
import tinsmith as ts


def squared(lang):
    @lang.kernel
    def step(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return step


def in_place(lang):
    @lang.kernel
    def step(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = y[i] * x[i] + x[i]

    return step


def added(lang):
    @lang.kernel
    def step(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] += x[i] * x[i]

    return step


def given():
    return torch.rand(5, dtype=torch.float64).requires_grad_(), torch.rand(5, dtype=torch.float64)


@pytest.mark.parametrize("times", [2, 4])
@pytest.mark.parametrize(
    ("make", "after"), [(in_place, lambda x, y: y * x + x), (added, lambda x, y: y + x * x)], ids=["in place", "added"]
)
def test_a_kernel_listed_twice_continues_from_its_own_result(lang64, make, after, times):
    x, c = given()
    expected = torch.zeros_like(x)
    for _ in range(times):
        expected = after(x, expected)
    result = ts.chain("x[n] -> y[n]", [make(lang64)] * times)(x)
    cases.assert_close(result, expected)
    cases.assert_close(torch.autograd.grad(result, x, c), torch.autograd.grad(expected, x, c))


def test_a_kernel_that_would_repeat_its_computation_is_refused(lang):
    step = squared(lang)
    with pytest.raises(ts.KernelError, match="launches kernel `step` twice") as refusal:
        ts.chain("x[n] -> y[n]", [step, step])
    assert "`x`: not changed since the first launch" in str(refusal.value)
    assert "y = step(step(x))" in str(refusal.value)


def test_one_function_under_two_names_is_one_kernel(lang):
    def step(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    with pytest.raises(ts.KernelError, match="launches kernel `step` twice"):
        ts.chain("x[n] -> y[n]", [lang.kernel(step), lang.kernel(step)])


def test_scratch_may_be_cleared_again(lang64):
    @lang64.kernel
    def clear(t: lang64.types.ndarray()):
        for i in t:
            t[i] = 0.0

    @lang64.kernel
    def gather(x: lang64.types.ndarray(), t: lang64.types.ndarray()):
        for i in x:
            t[i // 2] += x[i] * x[i]

    @lang64.kernel
    def add(t: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            y[i] += t[i // 2] * t[i // 2]

    op = ts.chain("x[n] -> y[n]", [clear, gather, add, clear, gather, add], scratch="t[n]")
    x, c = given()
    sums = torch.zeros(5, dtype=torch.float64).index_add(0, torch.arange(5) // 2, x * x)
    expected = 2 * sums[torch.arange(5) // 2] ** 2
    result = op(x)
    cases.assert_close(result, expected)
    cases.assert_close(torch.autograd.grad(result, x, c), torch.autograd.grad(expected, x, c))


def test_methods_of_two_objects_are_two_kernels(lang64):
    @lang64.data_oriented
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @lang64.kernel
        def add(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = y[i] + self.factor * x[i]

    x, c = given()
    result = ts.chain("x[n] -> y[n]", [Scale(2.0).add, Scale(3.0).add])(x)
    cases.assert_close(result, 5 * x)
    cases.assert_close(torch.autograd.grad(result, x, c), (5 * c,))


def test_an_op_with_a_gradient_of_its_own_is_refused(lang):
    op = ts.op("x[n] -> y[n]")(squared(lang))

    @op.backward
    @lang.kernel
    def step_backward(grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in grad_y:
            grad_x[i] = 0.0

    with pytest.raises(ts.ArgumentError, match="would leave out the hand-written gradient"):
        ts.chain("x[n] -> y[n]", [op])


def test_a_chain_in_a_chain_is_refused(lang):
    inner = ts.chain("x[n] -> y[n]", [squared(lang)] + [added(lang)])
    with pytest.raises(ts.ArgumentError, match="an op that is itself a chain"):
        ts.chain("x[n] -> y[n]", [inner, added(lang)])


def test_variables_of_two_kernels_may_have_one_name_and_two_types(lang64):
    """In each kernel, two loops share the variable `factor`, which is memory in the backward pass."""
    array = lang64.types.ndarray()

    @lang64.kernel
    def scaled(x: array, y: array):
        factor = x[0]
        for i in range(1, x.shape[0]):
            y[i] = factor * factor * x[i]

    @lang64.kernel
    def squared(x: array, z: array):
        factor = 0
        for i in range(x.shape[0]):
            factor += i
        for i in range(x.shape[0]):
            z[i] = factor * x[i] * x[i]

    x = torch.tensor([0.5, 2.0, 3.0, 4.0], dtype=torch.float64, requires_grad=True)
    y, z = ts.chain("x[n] -> y[n], z[n]", [scaled, squared], adjoint="source")(x)
    (gradient,) = torch.autograd.grad(y.sum() + z.sum(), x)
    wanted = (x[0] ** 2 * x[1:]).sum() + (6 * x**2).sum()
    torch.testing.assert_close(gradient, *torch.autograd.grad(wanted, x))
