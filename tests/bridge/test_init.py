"""`init`: memory that is not zeroed, of outputs, of scratch, and of gradients that a kernel by hand fills."""

import pytest
import torch

import cases
import tinsmith as ts

X = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)


@pytest.fixture(params=["0", "65536"], ids=["parallel", "serial"], autouse=True)
def _poisoned(configure, request):
    """Fill uninitialized memory with NaN, so that what is not zeroed shows."""
    configure(poison="1", serial_below=request.param)


def rooted(lang):
    @lang.kernel
    def root(x: lang.types.ndarray(), h: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            h[i] = x[i] * x[i] + 1.0
        for i in x:
            y[i] = lang.sqrt(h[i])

    return root


def rooted_back(lang):
    """Build a backward kernel that takes `h` from the forward pass."""

    @lang.kernel
    def back(
        x: lang.types.ndarray(), h: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()
    ):
        for i in range(1, x.shape[0]):  # the first is left out
            grad_x[i] = grad_y[i] * x[i] / lang.sqrt(h[i])

    return back


def worked_back(lang):
    """Build a backward kernel that computes `h` again, in memory of its own."""

    @lang.kernel
    def back(
        x: lang.types.ndarray(), h: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()
    ):
        for i in x:
            h[i] = x[i] * x[i] + 1.0
        for i in x:
            grad_x[i] = grad_y[i] * x[i] / lang.sqrt(h[i])

    return back


def compute_gradient(op, x=X):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(op(x).sum(), x)[0]


RIGHT = X / torch.sqrt(X * X + 1)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("how", ["zeros", "empty", "workspace"])
@pytest.mark.parametrize("adjoint", ["auto", "source"])
def test_scratch_that_is_stored_whole_needs_no_zeros(lang64, how, adjoint):
    op = ts.op("x[n] -> y[n]", scratch="h[n]", init={"h": how, "y": "empty"}, adjoint=adjoint)(rooted(lang64))
    cases.assert_same_values_and_gradients(op, lambda x: torch.sqrt(x * x + 1), [X])


def test_unzeroed_scratch_is_noticed(lang64):
    @lang64.kernel
    def passed(x: lang64.types.ndarray(), h: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] + h[i]

    for how, is_zero in {"zeros": True, "empty": False, "workspace": False}.items():
        op = ts.op("x[n] -> y[n]", scratch="h[n]", init={"h": how})(passed)
        assert torch.equal(op(X), X) == is_zero and bool(op(X).isnan().all()) != is_zero


@pytest.mark.parametrize("how", ["zeros", "empty"])
def test_a_backward_kernel_reads_scratch_of_the_forward_pass(lang64, how):
    op = ts.op("x[n] -> y[n]", scratch="h[n]", init={"h": how}, backward=rooted_back(lang64))(rooted(lang64))
    cases.assert_close(compute_gradient(op)[1:], RIGHT[1:])
    assert compute_gradient(op)[0] == 0.0


def test_a_workspace_is_not_shared_between_launches(lang64):
    handed = ts.op("x[n] -> y[n]", scratch="h[n]", init={"h": "workspace"}, backward=rooted_back(lang64))
    with pytest.raises(
        ts.SpecError, match=r"reads `h`, and never stores to it\n.*at .*\n.*'workspace'\nSay 'empty' for `h`"
    ):
        handed(rooted(lang64))
    own = ts.op("x[n] -> y[n]", scratch="h[n]", init={"h": "workspace"}, backward=worked_back(lang64))
    op = own(rooted(lang64))
    cases.assert_same_values_and_gradients(op, lambda x: torch.sqrt(x * x + 1), [X])
    x = X.clone().requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        op(x)
    assert [tensor.data_ptr() for tensor in kept] == [x.data_ptr()]


def test_a_gradient_that_is_filled_by_hand_needs_no_zeros(lang64):
    init = {"grad_x": "empty", "h": "workspace"}
    op = ts.op("x[n] -> y[n]", scratch="h[n]", init=init, backward=worked_back(lang64))(rooted(lang64))
    cases.assert_same_values_and_gradients(op, lambda x: torch.sqrt(x * x + 1), [X])
    batched = torch.stack([X, 2 * X])
    gradients = torch.func.vmap(torch.func.grad(lambda x: op(x).sum()))(batched)
    cases.assert_close(gradients, batched / torch.sqrt(batched * batched + 1))
    left = ts.op("x[n] -> y[n]", scratch="h[n]", init={"grad_x": "empty"}, backward=rooted_back(lang64))
    assert compute_gradient(left(rooted(lang64))).isnan().tolist() == [True] + [False] * 4


def test_an_init_of_an_unknown_gradient_is_refused(lang64):
    make = ts.op("x[n] -> y[n]", scratch="h[n]", init={"grad_h": "empty"}, backward=worked_back(lang64))
    with pytest.raises(ts.SpecError, match=r"`grad_h`.*\n.*expected +y, h, grad_x"):
        make(rooted(lang64))

    @lang64.kernel
    def back(grad_y: lang64.types.ndarray(), grad_k: lang64.types.ndarray()):
        for i in grad_y:
            grad_k[i] = grad_y[i]

    @lang64.kernel
    def total(x: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] + k[i]

    with pytest.raises(ts.SpecError, match=r"`grad_x`, which its backward kernel does not fill\n.*grad_y, grad_k"):
        ts.op("x[n], k[n] -> y[n]", init={"grad_x": "empty"}, backward=back)(total)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("adjoint", ["source", "engine"])
def test_other_gradients_start_at_zero_despite_init(lang64, adjoint):
    init = {"grad_x": "empty", "h": "empty"}
    make = ts.op("x[n] -> y[n]", scratch="h[n]", init=init, backward=worked_back(lang64), adjoint=adjoint)
    cases.assert_close(compute_gradient(make(rooted(lang64))), RIGHT)
    op = ts.op("x[n] -> y[n]", scratch="h[n]", init=init, backward=worked_back(lang64))(rooted(lang64))
    assert ts.gradcheck(op, X, adjoint=adjoint).findings == []


def test_an_accumulated_gradient_starts_at_zero_or_is_refused(lang64):
    @lang64.kernel
    def doubled(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    @lang64.kernel
    def back(grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in grad_y:
            grad_x[i] += 2.0 * grad_y[i]

    assert compute_gradient(ts.op("x[n] -> y[n]", backward=back)(doubled)).tolist() == [2.0] * 5
    with pytest.raises(
        ts.SpecError, match=r"adds to `grad_x`, and never stores to it\n.*at .*\n.*'empty'\nLeave `grad_x`"
    ):
        ts.op("x[n] -> y[n]", init={"grad_x": "empty"}, backward=back)(doubled)
