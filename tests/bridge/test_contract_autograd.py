"""The contract with autograd: an op's gradients reach whoever asked, whatever stands around the op."""

import pytest
import torch

import cases

SUBSETS = [(True, False), (False, True), (True, True)]
PAIRS = cases.select_cases(
    "clamped", "convolution", "bilinear", "compositing", "matrix_vector", "chained", "own_backward", "returned"
)


@pytest.fixture
def square(lang64):
    return cases.select_cases("square")[0].op(lang64, torch.float64)


@pytest.fixture
def formula(lang64):
    """Compute y = f(x, k), nonlinear in both."""
    return cases.select_cases("formula")[0]


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("wanted", SUBSETS, ids=["first", "second", "both"])
@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_any_subset_of_the_inputs_gets_its_gradient(lang64, case, wanted):
    op, inputs = case.op(lang64, torch.float64), case.inputs(torch.float64)

    def run(function):
        first, second, *rest = inputs
        pair = [t.clone().requires_grad_(flag) for t, flag in zip((first, second), wanted, strict=True)]
        out = function(*pair, *rest)
        out.backward(cases.draw_cotangents([out])[0])
        return [t.grad for t in pair]

    for mine, twin in zip(run(op), run(case.expected), strict=True):
        assert (mine is None) == (twin is None)
        if twin is not None:
            cases.assert_close(mine, twin)


def test_a_leaf_gets_its_gradient_once_and_accumulates_as_torch_does(square):
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    for times in (1, 2, 3):
        square(x).sum().backward()
        cases.assert_close(x.grad, times * 2 * x.detach())


def test_a_gradient_buffer_that_the_user_made_is_added_to(square):
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    x.grad = mine = torch.full((5,), 10.0, dtype=torch.float64)
    square(x).sum().backward()
    assert x.grad is mine
    cases.assert_close(x.grad, 10.0 + 2 * x.detach())


def test_autograd_grad_does_not_touch_the_leaf(square):
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(square(x).sum(), x)
    assert x.grad is None
    cases.assert_close(gradient, 2 * x.detach())


def test_inner_values_between_two_ops_get_their_gradient(square):
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    middle = square(torch.sin(x))
    middle.retain_grad()
    square(middle).sum().backward()
    sine = torch.sin(x.detach())
    cases.assert_close(middle.grad, 2 * sine**2)
    cases.assert_close(x.grad, 4 * sine**3 * torch.cos(x.detach()))


def test_a_gradient_shared_with_a_sibling_is_not_modified(square):
    x, sibling = (torch.rand(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    incoming = torch.rand(4, dtype=torch.float64)
    before = incoming.clone()
    (sibling * 1.0 + square(x)).backward(incoming)
    assert torch.equal(incoming, before)
    assert torch.equal(sibling.grad, before)
    cases.assert_close(x.grad, before * 2 * x.detach())


def test_a_sibling_op_shares_the_incoming_gradient(square):
    a, b = (torch.rand(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    (square(a) + square(b)).backward(torch.ones(4, dtype=torch.float64))
    cases.assert_close(a.grad, 2 * a.detach())
    cases.assert_close(b.grad, 2 * b.detach())


def test_an_output_used_several_times_sums_its_gradients(square):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    y = square(x)
    (y * y + 3 * y + y.sum()).sum().backward()
    value = x.detach()
    cases.assert_close(x.grad, (2 * value**2 + 3 + 4) * 2 * value)


def test_one_tensor_for_two_inputs_gets_the_sum_of_both_gradients(lang64, formula):
    x = torch.rand(5, dtype=torch.float64) + 0.5
    ours, twin = formula.op(lang64, torch.float64), formula.expected
    cases.assert_same_values_and_gradients(lambda x: ours(x, x), lambda x: twin(x, x), (x,))


def test_one_op_called_twice_before_backward_keeps_both_calls_apart(square):
    a, b = (torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    (square(a) * square(b)).sum().backward()
    cases.assert_close(a.grad, 2 * a.detach() * b.detach() ** 2)
    cases.assert_close(b.grad, 2 * b.detach() * a.detach() ** 2)


def test_calls_of_different_sizes_in_one_graph(square):
    x = torch.rand(6, dtype=torch.float64, requires_grad=True)
    (square(x).sum() + square(x[:2]).sum() + square(x[3:]).prod()).backward()
    twin = x.detach().clone().requires_grad_()
    ((twin**2).sum() + (twin[:2] ** 2).sum() + (twin[3:] ** 2).prod()).backward()
    cases.assert_close(x.grad, twin.grad)


EXPANDED = {
    "sum": lambda y: y.sum(),
    "mean": lambda y: y.mean(),
    "expanded": lambda y: (y.expand(3, -1) * 2.0).sum(),
    "strided": lambda y: (y[::2] * vector(1.0, 2.0, 3.0)).sum(),
    "flipped": lambda y: (y.flip(0) * torch.arange(6, dtype=torch.float64)).sum(),
}


@pytest.mark.parametrize("loss", EXPANDED.values(), ids=EXPANDED)
def test_expanded_and_strided_gradients(square, loss):
    cases.assert_same_values_and_gradients(
        lambda x: loss(square(x)), lambda x: loss(x * x), (torch.rand(6, dtype=torch.float64),)
    )


def test_a_transposed_gradient(lang64):
    case = cases.select_cases("matrix_product")[0]
    op, weight = case.op(lang64, torch.float64), torch.rand(2, 3, dtype=torch.float64)
    cases.assert_same_values_and_gradients(
        lambda a, b: (op(a, b).t() * weight).sum(),
        lambda a, b: ((a @ b).t() * weight).sum(),
        case.inputs(torch.float64),
    )


NONCONTIGUOUS = {
    "transposed": lambda x: x.t(),
    "strided": lambda x: x[::2, 1:],
    "expanded": lambda x: x[:1].expand(4, -1),
    "overlapping": lambda x: x.reshape(-1).as_strided((3, 3), (1, 1)),
    "offset": lambda x: x[1:],
}


@pytest.mark.parametrize("view", NONCONTIGUOUS.values(), ids=NONCONTIGUOUS)
def test_noncontiguous_and_overlapping_inputs(lang64, view):
    op = cases.select_cases("any_rank")[0].op(lang64, torch.float64)
    inputs = (torch.rand(4, 3, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64))
    cases.assert_same_values_and_gradients(
        lambda x, k: op(view(x), view(k)), lambda x, k: torch.cos(view(x)) * view(k) ** 2, inputs
    )


def test_retain_graph_gives_the_same_gradient_again(lang64):
    case = cases.select_cases("scratch_recurrence")[0]
    inputs = cases.make_leaves(case.inputs(torch.float64))
    loss = (case.op(lang64, torch.float64)(*inputs) ** 2).sum()
    first = torch.autograd.grad(loss, inputs, retain_graph=True)
    kept = [g.clone() for g in first]
    cases.assert_close(torch.autograd.grad(loss, inputs, retain_graph=True), tuple(kept))
    cases.assert_close(torch.autograd.grad(loss, inputs), tuple(kept))
    cases.assert_close(first, tuple(kept))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1), (1, 1)], ids=str)
def test_unused_outputs(lang64, used):
    case = cases.select_cases("two_outputs")[0]
    op = case.op(lang64, torch.float64)

    def loss(function):
        return lambda x: sum((function(x)[k] ** 2).sum() for k in used)

    cases.assert_same_values_and_gradients(loss(op), loss(case.expected), case.inputs(torch.float64))


def test_an_incoming_gradient_of_none_is_a_zero(lang64):
    op = cases.select_cases("two_outputs")[0].op(lang64, torch.float64)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    out = op(x)
    torch.autograd.backward([out.y], [torch.ones(4, dtype=torch.float64)])
    cases.assert_close(x.grad, 2 * x.detach())


def test_integer_inputs_and_outputs_have_no_gradient(lang64):
    counted = cases.select_cases("counted")[0].op(lang64, torch.float64)
    gather, index = (
        cases.select_cases("gather")[0].op(lang64, torch.float64),
        torch.tensor([1, 1, 0], dtype=torch.int32),
    )
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    out = counted(x)
    assert out.y.requires_grad and not out.positive.requires_grad
    (out.y.sum() + gather(x, index).sum()).backward()
    cases.assert_close(x.grad, 2 * x.detach() * vector(2.0, 3.0, 1.0, 1.0))
    assert index.grad is None


def test_a_gradient_hook_sees_and_may_change_the_gradient(square):
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    y = square(x)
    y.register_hook(lambda g: g * 10.0)
    x.register_hook(lambda g: g + 1.0)
    y.sum().backward()
    cases.assert_close(x.grad, 10 * 2 * x.detach() + 1)


def test_anomaly_mode(square):
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        square(x).sum().backward()
    cases.assert_close(x.grad, 2 * x.detach())


def test_returned_gradients_are_not_overwritten_by_later_calls(square):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    first = square(x)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    values, kept = first.detach().clone(), gradient.clone()
    for _ in range(3):
        square(x.detach() * 3 + 1)
        other = torch.rand(4, dtype=torch.float64, requires_grad=True)
        square(other).sum().backward()
    assert torch.equal(first, values) and torch.equal(gradient, kept)


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_the_callers_tensors_are_not_modified(lang64, case):
    inputs = cases.make_leaves(case.inputs(torch.float64))
    given = [v for v in inputs if isinstance(v, torch.Tensor)]
    before = [(t.detach().clone(), t._version, t.data_ptr()) for t in given]
    outputs = cases.select_differentiable(cases.list_tensors(case.op(lang64, torch.float64)(*inputs)))
    if cases.select_differentiable(given):
        incoming = cases.draw_cotangents(outputs)
        kept = [c.clone() for c in incoming]
        gradients = torch.autograd.grad(outputs, cases.select_differentiable(given), incoming)
        assert all(torch.equal(a, b) for a, b in zip(incoming, kept, strict=True))
        pointers = {t.data_ptr() for t in given + incoming + outputs}
        assert not pointers & {g.data_ptr() for g in gradients}
    for tensor, (value, version, pointer) in zip(given, before, strict=True):
        assert torch.equal(tensor, value) and tensor._version == version and tensor.data_ptr() == pointer
        assert tensor.grad is None
