"""Kernels that return values: what they return is an output that no parameter has as its name."""

import pytest
import torch

import cases
import tinsmith as ts


def energy(lang):
    @lang.kernel
    def energy(x: lang.types.ndarray(), w: lang.types.ndarray()) -> lang.f64:
        total = 0.0
        for i in x:
            total += w[i] * x[i] ** 2
        return 0.5 * total

    return energy


def test_a_number(lang64):
    op = ts.op("x[n], w[n] -> energy[]")(energy(lang64))
    assert op.arguments == ("x", "w")
    inputs = [torch.rand(7, dtype=torch.float64) for _ in range(2)]
    cases.assert_same_values_and_gradients(op, lambda x, w: 0.5 * (w * x**2).sum(), inputs)
    assert op(*inputs).shape == ()


def test_a_number_of_each_sample(lang64):
    op = ts.op("x[*b, n], w[n] -> energy[*b]")(energy(lang64))
    inputs = torch.rand(2, 3, 7, dtype=torch.float64), torch.rand(7, dtype=torch.float64)
    cases.assert_same_values_and_gradients(op, lambda x, w: 0.5 * (w * x**2).sum(-1), inputs)
    single = ts.op("x[n], w[n] -> energy[]")(energy(lang64))
    x, w = inputs
    torch.testing.assert_close(torch.func.vmap(single, (0, None))(x[0], w), op(x[0], w))
    torch.testing.assert_close(torch.func.hessian(single)(x[0, 0], w), torch.diag(w))


@pytest.mark.parametrize("adjoint", ["source", "engine"])
def test_several_values_one_of_them_a_vector(lang64, adjoint):
    vec2 = lang64.types.vector(2, lang64.f64)

    @lang64.kernel
    def summary(x: lang64.types.ndarray(), y: lang64.types.ndarray()) -> (lang64.f64, vec2):
        for i in x:
            y[i] = 2.0 * x[i]
        return x[0] * x[1], vec2(x[0] ** 2, lang64.sin(x[1]))

    op = ts.op("x[n] -> y[n], product[], pair[2]", adjoint=adjoint)(summary)

    def expected(x):
        return 2 * x, x[0] * x[1], torch.stack([x[0] ** 2, x[1].sin()])

    cases.assert_same_values_and_gradients(op, expected, (torch.rand(5, dtype=torch.float64),))
    assert op(torch.rand(5, dtype=torch.float64))._fields == ("y", "product", "pair")


def test_the_last_kernel_of_a_chain(lang64):
    @lang64.kernel
    def squares(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2

    @lang64.kernel
    def largest(y: lang64.types.ndarray()) -> lang64.f64:
        found = 0.0
        for _ in range(1):
            for i in range(y.shape[0]):
                found = lang64.max(found, y[i])
        return found

    op = ts.chain("x[n] -> top[]", [squares, largest], scratch="y[n]")
    cases.assert_same_values_and_gradients(op, lambda x: (x**2).max(), (torch.rand(6, dtype=torch.float64),))


def test_half_and_single_precision_as_the_annotation_says(lang):
    @lang.kernel
    def mean(x: lang.types.ndarray()) -> lang.f32:
        total = 0.0
        for i in x:
            total += x[i]
        return total / x.shape[0]

    op = ts.op("x[n] -> mean[]")(mean)
    x = torch.rand(9)
    torch.testing.assert_close(op(x), x.mean())
    assert op(x.bfloat16()).dtype == torch.bfloat16
    assert op(x.double()).dtype == torch.float32


def test_the_kernel_stays_the_user_s(lang64):
    kernel = energy(lang64)
    x, w = torch.rand(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    value = ts.op("x[n], w[n] -> energy[]")(kernel)(x, w)
    assert kernel(x, w) == pytest.approx(value.item())


def test_a_compiled_call(lang64):
    torch._dynamo.reset()
    op = ts.op("x[n], w[n] -> energy[]")(energy(lang64))
    x, w = torch.rand(5, dtype=torch.float64, requires_grad=True), torch.rand(5, dtype=torch.float64)
    value = torch.compile(op, fullgraph=True, backend="aot_eager")(x, w)
    (slope,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(slope, (w * x).detach())
