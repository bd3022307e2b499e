"""Hand-written backward kernels and chains."""

import pytest
import torch

import cases
import tinsmith as ts


def forward_kernel(lang):
    @lang.kernel
    def wave(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sin(x[i]) * k[i]

    return wave


INPUTS = (torch.linspace(-1, 1, 5, dtype=torch.float64), torch.linspace(0.5, 2, 5, dtype=torch.float64))


def compute_gradients(op, wanted=(True, True)):
    inputs = [t.clone().requires_grad_(flag) for t, flag in zip(INPUTS, wanted, strict=True)]
    op(*inputs).sum().backward()
    return [t.grad for t in inputs]


def test_the_given_backward_kernel_runs(lang64):
    """A backward that is wrong on purpose shows that the engine's own is not used."""

    @lang64.kernel
    def back(grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray(), grad_k: lang64.types.ndarray()):
        for i in grad_y:
            grad_x[i] = 10.0 * grad_y[i]
            grad_k[i] = 20.0 * grad_y[i]

    for op in (ts.op("x[n], k[n] -> y[n]", backward=back)(forward_kernel(lang64)), _decorated(lang64, back)):
        grad_x, grad_k = compute_gradients(op)
        assert grad_x.tolist() == [10.0] * 5 and grad_k.tolist() == [20.0] * 5


def _decorated(lang, back):
    op = ts.op("x[n], k[n] -> y[n]")(forward_kernel(lang))
    op.backward(back)
    return op


def test_an_input_without_a_grad_parameter_gets_no_gradient_or_is_refused(lang64):
    """`k` has no grad_k: asking for its gradient must never give a silent zero."""

    @lang64.kernel
    def back(
        x: lang64.types.ndarray(),
        k: lang64.types.ndarray(),
        grad_y: lang64.types.ndarray(),
        grad_x: lang64.types.ndarray(),
    ):  # noqa: E501
        for i in x:
            grad_x[i] = lang64.cos(x[i]) * k[i] * grad_y[i]

    op = ts.op("x[n], k[n] -> y[n]", backward=back)(forward_kernel(lang64))
    cases.assert_close(compute_gradients(op, (True, False))[0], torch.cos(INPUTS[0]) * INPUTS[1])
    with pytest.raises(ts.GradientError, match="grad_k"):
        compute_gradients(op)


def test_a_backward_kernel_may_read_outputs_and_scratch_of_the_forward(lang64):
    @lang64.kernel
    def root(x: lang64.types.ndarray(), h: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            h[i] = x[i] * x[i] + 1.0
        for i in x:
            y[i] = lang64.sqrt(h[i])

    @lang64.kernel
    def back(
        y: lang64.types.ndarray(), h: lang64.types.ndarray(), x: lang64.types.ndarray(),
        grad_x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(),
    ):  # fmt: skip
        for i in x:
            grad_x[i] = grad_y[i] * x[i] * y[i] / h[i]

    op = ts.op("x[n] -> y[n]", scratch="h[n]", backward=back)(root)
    cases.assert_same_values_and_gradients(op, lambda x: torch.sqrt(x * x + 1), INPUTS[:1])


def test_gradients_start_at_zero_and_cotangents_may_be_overwritten(lang64):
    """It accumulates into grad_x and scribbles over grad_y; nobody else notices."""

    @lang64.kernel
    def back(
        x: lang64.types.ndarray(), k: lang64.types.ndarray(), grad_y: lang64.types.ndarray(),
        grad_x: lang64.types.ndarray(), grad_k: lang64.types.ndarray(),
    ):  # fmt: skip
        for i in x:
            grad_x[i] += lang64.cos(x[i]) * k[i] * grad_y[i]
            grad_k[i] += lang64.sin(x[i]) * grad_y[i]
            grad_y[i] = 1000.0

    op = ts.op("x[n], k[n] -> y[n]", backward=back)(forward_kernel(lang64))
    for _ in range(2):
        cases.assert_same_values_and_gradients(op, lambda x, k: torch.sin(x) * k, INPUTS)
    incoming = torch.ones(5, dtype=torch.float64)
    op(INPUTS[0].clone().requires_grad_(), INPUTS[1]).backward(incoming)
    assert incoming.tolist() == [1.0] * 5


def test_inputs_it_reads_are_saved_and_version_checked(lang64):
    case = cases.select_cases("backward_argument")[0]
    inputs = cases.make_leaves(case.inputs(torch.float64))
    y = case.op(lang64, torch.float64)(*inputs)
    with torch.no_grad():
        inputs[1].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_backward_kernel_works_for_vectors_and_batches(lang64):
    vec2 = lang64.types.vector(2, lang64.f64)
    array, number = lang64.types.ndarray(dtype=vec2, ndim=1), lang64.types.ndarray(dtype=lang64.f64, ndim=1)

    @ts.op("p[*b, n, 2] -> y[*b, n]")
    @lang64.kernel
    def squared(p: array, y: number):
        for i in p:
            y[i] = p[i].dot(p[i])

    @squared.backward
    @lang64.kernel
    def back(p: array, grad_y: number, grad_p: array):
        for i in p:
            grad_p[i] = 2.0 * grad_y[i] * p[i]

    p = torch.rand(3, 4, 2, dtype=torch.float64)
    cases.assert_same_values_and_gradients(squared, lambda p: (p * p).sum(-1), (p,))
    cases.assert_same_values_and_gradients(torch.func.vmap(squared), lambda p: (p * p).sum(-1), (p,))


# --- chains -----------------------------------------------------------------------------------------------------------


def test_a_chain_overwrites_no_buffer_of_its_own(lang64):
    """The same kernel twice, each time into memory of its own (pitfall 59 reuses one)."""

    @lang64.kernel
    def first(x: lang64.types.ndarray(), a: lang64.types.ndarray(), h: lang64.types.ndarray()):
        for i in x:
            h[i] = lang64.tanh(a[0] * x[i])

    @lang64.kernel
    def second(h: lang64.types.ndarray(), b: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in h:
            y[i] = lang64.tanh(b[0] * h[i])

    op = ts.chain("x[n], a[1], b[1] -> y[n]", [first, second], scratch="h[n]")
    inputs = [torch.rand(size, dtype=torch.float64) for size in (3, 1, 1)]
    cases.assert_same_values_and_gradients(op, lambda x, a, b: torch.tanh(b * torch.tanh(a * x)), inputs)


def test_a_chain_with_an_intermediate_output_and_scalars(lang64):
    @lang64.kernel
    def scale(x: lang64.types.ndarray(), factor: lang64.f64, h: lang64.types.ndarray()):
        for i in x:
            h[i] = factor * x[i] * x[i]

    @lang64.kernel
    def total(h: lang64.types.ndarray(), s: lang64.types.ndarray(ndim=0)):
        for i in h:
            s[None] += h[i] * h[i]

    op = ts.chain("x[n] -> h[n], s[]", [scale, total])
    x = torch.rand(4, dtype=torch.float64)
    out = op(x, 3.0)
    assert out._fields == ("h", "s")
    cases.assert_same_values_and_gradients(lambda x: tuple(op(x, 3.0)), lambda x: (3 * x * x, (9 * x**4).sum()), (x,))


def test_a_chain_of_one_kernel(lang64):
    op = ts.chain("x[n], k[n] -> y[n]", [forward_kernel(lang64)])
    cases.assert_same_values_and_gradients(op, lambda x, k: torch.sin(x) * k, INPUTS)


def test_a_chain_under_vmap(lang64):
    case = cases.select_cases("chained_network")[0]
    x, a, b = case.inputs(torch.float64)
    x = torch.stack([x, 2 * x, -x])
    cases.assert_same_values_and_gradients(
        torch.func.vmap(case.op(lang64, torch.float64), (0, None, None)),
        lambda x, a, b: torch.stack([case.expected(row, a, b) for row in x]),
        (x, a, b),
    )


def test_a_backward_kernel_may_use_the_forward_arrays_as_its_workspace(lang64):
    """What it writes into is a copy: inputs, outputs and scratch are as before, for the next backward pass too."""

    @ts.op("x[n] -> y[n]", scratch="w[n], c[n]: i32")
    @lang64.kernel
    def square(
        x: lang64.types.ndarray(), w: lang64.types.ndarray(), c: lang64.types.ndarray(), y: lang64.types.ndarray()
    ):
        for i in x:
            w[i] = 5.0
            c[i] = 7
            y[i] = x[i] * x[i]

    @square.backward
    @lang64.kernel
    def square_backward(
        x: lang64.types.ndarray(),
        w: lang64.types.ndarray(),
        c: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
        grad_y: lang64.types.ndarray(),
        grad_x: lang64.types.ndarray(),
    ):
        for i in grad_y:
            c[i] += 1
            w[i] += 2.0 * x[i]
            y[i] = w[i] * c[i]
            grad_x[i] = grad_y[i] * y[i]
            x[i] = 0.0

    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    before = x.detach().clone()
    y = square(x)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        torch.testing.assert_close(gradient, (5 + 2 * before) * 8)
        assert torch.equal(x.detach(), before) and torch.equal(y.detach(), before**2)


def test_an_array_named_like_the_gradient_of_another_is_refused(lang):
    @lang.kernel
    def scale(x: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * x[i]

    @lang.kernel
    def back(grad_grad_x: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in grad_grad_x:
            grad_x[i] = 2.0 * grad_grad_x[i]

    with pytest.raises(
        ts.SpecError, match="`grad_x` of op `scale` is both the name of an array and the name of the gradient of `x`"
    ):
        ts.op("x[n] -> grad_x[n]", backward=back)(scale)
