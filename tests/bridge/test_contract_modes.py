"""The contract with torch's modes: no_grad, inference, checkpointing, saved-tensor hooks, autocast, threads."""

import threading

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import cases
import tinsmith as ts
from support.adjoints import with_adjoint


@pytest.fixture
def square(lang64):
    return cases.select_cases("square")[0].op(lang64, torch.float64)


def list_saved(call):
    """Return the tensors that `call` saves for the backward pass."""
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    return result, packed


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_without_grad_nothing_is_recorded_or_allocated(square, mode):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    with mode():
        (y, packed) = list_saved(lambda: square(x))
    cases.assert_close(y, x.detach() ** 2)
    assert not y.requires_grad and y.grad_fn is None and x.grad is None and not packed
    assert y.is_inference() == (mode is torch.inference_mode)


def test_inference_tensors_go_in(square):
    with torch.inference_mode():
        x = torch.rand(4, dtype=torch.float64)
    cases.assert_close(square(x), x.clone() ** 2)


def test_detached_inputs_record_nothing(square):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    y, packed = list_saved(lambda: square(x.detach()))
    assert not y.requires_grad and not packed


def test_enable_grad_inside_no_grad(square):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    with torch.no_grad(), torch.enable_grad():
        loss = square(x).sum()
    loss.backward()
    cases.assert_close(x.grad, 2 * x.detach())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(lang64, reentrant):
    case = cases.select_cases("compositing")[0]
    op, inputs = case.op(lang64, torch.float64), cases.make_leaves(case.inputs(torch.float64))
    calls = []

    def block(alpha, color):
        calls.append(1)
        return torch.sin(op(alpha, color * 2.0))

    checkpoint(block, *inputs, use_reentrant=reentrant).sum().backward()
    twins = cases.make_leaves(inputs)
    torch.sin(case.expected(twins[0], twins[1] * 2.0)).sum().backward()
    for mine, twin in zip(inputs, twins, strict=True):
        cases.assert_close(mine.grad, twin.grad)
    assert len(calls) == 2  # the second in the backward pass


def test_the_backward_reads_what_the_unpack_hook_gives(square):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    with saved_tensors_hooks(
        lambda tensor: tensor.detach().numpy().copy(), lambda array: torch.from_numpy(array) + 1.0
    ):
        y = square(x)
    y.sum().backward()
    cases.assert_close(x.grad, 2 * (x.detach() + 1.0))


def test_save_on_cpu(lang64):
    case = cases.select_cases("scatter")[0]
    op = case.op(lang64, torch.float64)

    def spared(*inputs):
        with save_on_cpu():
            return op(*inputs)

    cases.assert_same_values_and_gradients(spared, case.expected, case.inputs(torch.float64))


# What the backward kernel reads, by the input's place; outputs that the kernel only writes are never saved.
SAVED = {
    "square": {0},
    "formula": {0, 1},
    "two_outputs": {0},
    "gather": {0, 1},
    "segments": {0, 1},
    "convolution": {0, 1},
    "own_backward": {0, 1},
}


@pytest.mark.parametrize("name", SAVED)
def test_only_what_the_backward_needs_is_saved(lang64, name):
    case = cases.select_cases(name)[0]
    inputs = cases.make_leaves(case.inputs(torch.float64))
    _, packed = list_saved(lambda: case.op(lang64, torch.float64)(*inputs))
    assert {t.data_ptr() for t in packed} <= {inputs[k].data_ptr() for k in SAVED[name]}
    assert len(packed) <= len(SAVED[name])


def test_values_that_no_gradient_depends_on_are_not_saved(lang64):
    """The gradient for k reads neither k nor x, and the hand-written backward asks for neither."""

    @lang64.kernel
    def scaled(k: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = 3.0 * k[i] + x[i] * x[i]

    @lang64.kernel
    def back(grad_y: lang64.types.ndarray(), grad_k: lang64.types.ndarray()):
        for i in grad_y:
            grad_k[i] = 3.0 * grad_y[i]

    op = ts.op("k[n], x[n] -> y[n]", backward=back)(scaled)
    k, x = torch.rand(3, dtype=torch.float64, requires_grad=True), torch.rand(3, dtype=torch.float64)
    y, packed = list_saved(lambda: op(k, x))
    assert not packed
    y.sum().backward()
    cases.assert_close(k.grad, torch.full((3,), 3.0, dtype=torch.float64))


MODIFIED = [("square", 0), ("convolution", 1), ("gather", 1), ("scatter", 0), ("chained", 1), ("learnable_scalar", 0)]


@pytest.mark.parametrize(("name", "place"), MODIFIED)
def test_an_input_modified_in_place_is_detected(lang64, name, place):
    case = cases.select_cases(name)[0]
    inputs = cases.make_leaves(case.inputs(torch.float64))
    y = case.op(lang64, torch.float64)(*inputs)
    with torch.no_grad():
        inputs[place].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_output_that_the_backward_does_not_read_may_be_modified(square):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    y = square(x)
    y.mul_(3.0)
    y.sum().backward()
    cases.assert_close(x.grad, 6 * x.detach())


@pytest.mark.compiled_engine
@pytest.mark.parametrize("adjoint", ["engine", "source"])
def test_an_output_that_the_backward_reads_is_watched(lang64, adjoint):
    """Both read the path that the forward pass left."""
    case = cases.select_cases("output_recurrence")[0]
    (u,) = cases.make_leaves(case.inputs(torch.float64))
    path = with_adjoint(adjoint, case.raw_op(lang64, torch.float64))(u)
    path.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        path.sum().backward()


def test_one_output_of_several_may_be_modified(lang64):
    op = cases.select_cases("two_outputs")[0].op(lang64, torch.float64)
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    out = op(x)
    out.y.mul_(2.0)
    (out.y.sum() + out.total).backward()
    cases.assert_close(x.grad, 4 * x.detach() + torch.cos(x.detach()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_float32(lang, dtype):
    case = cases.select_cases("dot")[0]
    op = case.op(lang, torch.float32)
    x, weight = torch.rand(6, 6, requires_grad=True), torch.rand(6)
    with torch.autocast("cpu", dtype=dtype):
        low = x @ weight  # a product in the low precision
        assert low.dtype == dtype
        out = op(low, weight)
    assert out.dtype == torch.float32
    cases.assert_close(out, (low.detach().float() * weight).sum())
    out.backward()
    cases.assert_close(x.grad, weight[:, None] * weight[None], rtol=2e-2, atol=2e-2)
    assert x.grad.dtype == torch.float32


def test_the_gradient_of_an_autocast_input_has_its_own_dtype(lang):
    op = cases.select_cases("square")[0].op(lang, torch.float32)
    x = torch.rand(6).to(torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = op(x)
    y.sum().backward()
    assert y.dtype == torch.float32 and x.grad.dtype == torch.bfloat16
    cases.assert_close(x.grad.float(), 2 * x.detach().float(), rtol=1e-2, atol=1e-2)


def run_in_thread(work):
    """Run a function in a thread of its own, and return its result or raise its error."""
    outcomes = []

    def body():
        try:
            outcomes.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            outcomes.append((None, error))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    result, error = outcomes[0]
    if error is not None:
        raise error
    return result


def test_backward_from_another_thread(square):
    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    loss = square(x).sum()
    run_in_thread(loss.backward)
    cases.assert_close(x.grad, 2 * x.detach())


@pytest.mark.parametrize("name", ["branches", "softmax", "matrix_vector"])
def test_the_first_call_ever_from_another_thread(lang64, name):
    case = cases.select_cases(name)[0]
    op = case.build(lang64, lang64.f64)  # a fresh op: nothing compiled yet
    inputs = case.inputs(torch.float64)
    run_in_thread(lambda: cases.assert_same_values_and_gradients(op, case.expected, inputs))


def test_many_threads_at_once(lang64):
    case = cases.select_cases("compositing")[0]
    op = case.op(lang64, torch.float64)

    def work(seed):
        inputs = case.inputs(torch.float64, seed)
        for _ in range(25):
            cases.assert_same_values_and_gradients(op, case.expected, inputs)

    failures = []

    def guarded(seed):
        try:
            work(seed)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
