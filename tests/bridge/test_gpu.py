"""CUDA: the same code path on the GPU, in order with torch's streams, and no silent copies."""

import subprocess
import sys
import warnings

import pytest
import torch

import cases
import tinsmith as ts

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:taichi launches on CUDA")]
NAMES = [
    "square", "convolution", "gather", "scatter", "embedding", "scratch_recurrence", "chained", "batched", "splat",
    "learnable_scalar", "own_backward", "lengths", "matrix_vector", "template_arrays", "two_outputs",
]  # fmt: skip


def on_gpu(inputs):
    return [value.cuda() if isinstance(value, torch.Tensor) else value for value in inputs]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_torch(lang, name):
    case = cases.select_cases(name)[0]
    op, inputs = case.op(lang, torch.float32), case.inputs(torch.float32)
    mine = cases.list_tensors(op(*on_gpu(inputs)))
    assert all(output.is_cuda for output in mine)
    for output, wanted in zip(mine, cases.list_tensors(case.expected(*inputs)), strict=True):
        torch.testing.assert_close(output.cpu(), wanted.to(output.dtype), rtol=1e-4, atol=1e-4)
    fresh = [v.requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in on_gpu(inputs)]
    twins = [v.detach().cpu().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v for v in fresh]
    sum(o.square().sum() for o in cases.list_tensors(op(*fresh)) if o.is_floating_point()).backward()
    sum(o.square().sum() for o in cases.list_tensors(case.expected(*twins)) if o.is_floating_point()).backward()
    for mine_, twin in zip(fresh, twins, strict=True):
        if isinstance(twin, torch.Tensor) and twin.grad is not None:
            torch.testing.assert_close(mine_.grad.cpu(), twin.grad, rtol=1e-3, atol=1e-3)


def test_a_side_stream_is_kept_in_order(lang):
    """The input is made by slow work on a side stream; the launch must wait for it, and later work for the launch."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3.0 * x[i]

    stream = torch.cuda.Stream()
    for round_ in range(20):
        with torch.cuda.stream(stream):
            big = torch.full((2048, 2048), 1.0 / 2048, device="cuda")
            for _ in range(20):
                big = big @ big
            x = (big[0] * 2048 * 0 + round_).requires_grad_()
            y = triple(x)
            total = (y * 2).sum()
            total.backward()
        stream.synchronize()
        assert total.item() == 6.0 * round_ * 2048
        assert torch.all(x.grad == 6.0)


def test_backward_on_autograds_own_thread_and_stream(lang):
    case = cases.select_cases("convolution")[0]
    op = case.op(lang, torch.float32)
    x, k = [t.cuda().requires_grad_() for t in case.inputs(torch.float32)]
    with torch.cuda.stream(torch.cuda.Stream()):
        loss = op(x, k).square().sum()
    loss.backward()
    torch.cuda.synchronize()
    a, b = x.detach().cpu().requires_grad_(), k.detach().cpu().requires_grad_()
    case.expected(a, b).square().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), a.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(k.grad.cpu(), b.grad, rtol=1e-4, atol=1e-4)


def test_host_tensors_are_refused(lang):
    op = cases.select_cases("square")[0].op(lang, torch.float32)
    with pytest.raises(ts.DeviceError, match=r"cpu.*cuda"):
        op(torch.ones(3))


def test_no_memory_is_copied_to_the_host(lang):
    op = cases.select_cases("square")[0].op(lang, torch.float32)
    x = torch.ones(1000, device="cuda", requires_grad=True)
    op(x).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.11 warns that the profiler keeps the events of one cycle
        profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        profile.start()
    op(x).sum().backward()
    torch.cuda.synchronize()
    profile.stop()
    assert not [event.key for event in profile.key_averages() if "DtoH" in event.key]


def test_vmap_takes_one_launch_there_too(lang):
    op = cases.select_cases("convolution")[0].op(lang, torch.float32)
    x, k = torch.rand(6, 50, device="cuda"), torch.rand(4, device="cuda")
    torch.testing.assert_close(torch.vmap(op, (0, None))(x, k), torch.stack([op(row, k) for row in x]))


def test_iterations_that_store_the_same_value_share_its_gradient(lang64):
    """All rows go over the same elements: a thousand threads are there at once, and one of them has to get it."""

    @lang64.kernel
    def double(x: lang64.types.ndarray(), start: lang64.types.ndarray(lang64.i32), y: lang64.types.ndarray()):
        for _r in range(start.shape[0] - 1):
            for s in range(start[0], start[1]):
                y[s] = 2.0 * x[s]

    op = ts.op("x[n], start[k]: i32 -> y[n]", adjoint="source")(double)
    x = torch.rand(200, dtype=torch.float64, device="cuda", requires_grad=True)
    start = torch.zeros(5000, dtype=torch.int32, device="cuda")
    start[1:] = 200
    cotangent = torch.rand_like(x)
    for _ in range(5):
        (slope,) = torch.autograd.grad(op(x, start), x, cotangent)
        torch.testing.assert_close(slope, 2 * cotangent)


@pytest.mark.parametrize("name", ["square", "convolution", "embedding", "two_outputs"])
def test_batched_gradients_in_autograds_own_thread(lang64, name):
    case = cases.select_cases(name)[0]
    op, inputs = case.op(lang64, torch.float64), on_gpu(case.inputs(torch.float64))
    leaves = [v.requires_grad_() for v in inputs if isinstance(v, torch.Tensor) and v.is_floating_point()]
    output = next(one for one in cases.list_tensors(op(*inputs)) if one.requires_grad)
    cotangents = torch.rand(4, *output.shape, dtype=torch.float64, device="cuda")
    batch = torch.autograd.grad(output, leaves, cotangents, is_grads_batched=True, retain_graph=True, allow_unused=True)
    for number, cotangent in enumerate(cotangents):
        wanted = torch.autograd.grad(output, leaves, cotangent, retain_graph=True, allow_unused=True)
        for one, other in zip(batch, wanted, strict=True):
            if other is not None:
                torch.testing.assert_close(one[number], other)


def test_forward_mode_and_a_hessian(lang64):
    @lang64.kernel
    def wave(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.sin(x[i]) * x[i]

    op = ts.op("x[n] -> y[n]", adjoint="source")(wave)
    x = torch.rand(7, dtype=torch.float64, device="cuda")
    mine = torch.func.hessian(lambda x: op(x).square().sum())(x)
    torch.testing.assert_close(mine, torch.func.hessian(lambda x: (x.sin() * x).square().sum())(x))
    both = [torch.func.jvp(one, (x,), (x.cos(),)) for one in (op, lambda x: x.sin() * x)]
    torch.testing.assert_close(*both)


def test_a_compiled_call(lang64):
    op = cases.select_cases("square")[0].op(lang64, torch.float64)
    x = torch.rand(50, dtype=torch.float64, device="cuda", requires_grad=True)
    run = torch.compile(lambda x: op(x).sin().sum(), fullgraph=True, backend="aot_eager")
    (slope,) = torch.autograd.grad(run(x), x)
    (wanted,) = torch.autograd.grad(x.square().sin().sum(), x)
    torch.testing.assert_close(slope, wanted)


RESTART = """
import ENGINE as lang, tinsmith as ts, torch

ts.init("cuda", engine="ENGINE")


@ts.op("x[n] -> y[n]")
@lang.kernel
def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


x = torch.rand(5, device="cuda", requires_grad=True)
y = square(x)
y.sum().backward(retain_graph=True)
ts.init("cuda", engine="ENGINE")
square(x).sum().backward()
y.sum().backward()
torch.testing.assert_close(x.grad, 6 * x.detach())
"""


@pytest.mark.parametrize("engine", ["taichi", "quadrants"])
def test_an_engine_restart_between_two_backward_passes(engine, tmp_path):
    """Launches of the engine before would end the process."""
    program = tmp_path / "restart.py"
    program.write_text(RESTART.replace("ENGINE", engine))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
