"""CUDA: launches on torch's streams, and in CUDA graphs, on a device.

What can be known without one is in tests/engines/test_streams.py.
"""

import gc

import pytest
import torch

import tinsmith as ts

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:taichi launches on CUDA")]


@pytest.fixture
def quadrants(engine, lang):
    if engine != "quadrants":
        pytest.skip("only Quadrants launches on torch's streams")
    return lang


def make_affine(lang, **options):
    @ts.op("x[n, m], w[m] -> y[n, m]", **options)
    @lang.kernel
    def affine(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in x:
            y[i, j] = w[j] * lang.tanh(x[i, j]) + x[i, j] * x[i, j]

    return affine


def affine_in_torch(x, w):
    return w * x.tanh() + x * x


def test_two_streams_at_once_share_no_loop_bounds(lang):
    """Both engines pass the bounds of a parallel loop through memory that all kernels of a program share."""
    affine = make_affine(lang)
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    sizes = [(3, 5), (1500, 1700)]
    given = [(torch.rand(n, m, device="cuda"), torch.rand(m, device="cuda")) for n, m in sizes]
    for arguments in given:
        affine(*arguments)
    torch.cuda.synchronize()
    for round_ in range(200):
        results = []
        for stream, arguments in zip(streams[:: 1 - 2 * (round_ % 2)], given, strict=True):
            with torch.cuda.stream(stream):
                results.append(affine(*arguments))
        torch.cuda.synchronize()
        for result, arguments in zip(results, given, strict=True):
            torch.testing.assert_close(result, affine_in_torch(*arguments), rtol=1e-4, atol=1e-4)


def test_memory_is_used_again_only_after_the_launch(lang):
    """Tensors are freed as soon as they were passed, while their kernels wait; torch gives the memory to others."""
    affine, w = make_affine(lang), torch.ones(1000, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        big = torch.full((2048, 2048), 1.0 / 2048, device="cuda")
        totals = []
        for number in range(50):
            for _ in range(5):
                big = big @ big
            x = torch.full((1000, 1000), float(number), device="cuda") * (big[0, 0] * 2048)
            totals.append(affine(x, w * 0).double().mean())
            del x
            torch.full((1000, 1000), -7.0, device="cuda")
        means = torch.stack(totals).cpu()
    torch.testing.assert_close(means, torch.arange(50, dtype=torch.float64).square(), rtol=1e-3, atol=1e-3)


class Model(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)
        self.w = torch.nn.Parameter(torch.ones(16))

    def forward(self, x):
        return self.second(self.op(self.op(self.first(x), self.w), self.w))


def make_training(op, seed=0):
    torch.manual_seed(seed)
    model = Model(op).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, capturable=True)
    x, wanted = torch.zeros(32, 8, device="cuda"), torch.zeros(32, 1, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, x, wanted, step


def warm_up(step):
    """Run a step on a side stream, as torch's guide to CUDA graphs does."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def test_a_graph_of_forward_backward_and_optimizer_step(quadrants):
    affine = make_affine(quadrants)
    model, x, wanted, step = make_training(affine)
    twin, twin_x, twin_wanted, twin_step = make_training(affine_in_torch)
    warm_up(step)
    warm_up(twin_step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    gc.collect()
    other = torch.rand(100, 30, device="cuda")
    for _ in range(30):
        batch = torch.rand(32, 8, device="cuda")
        for one in (x, twin_x):
            one.copy_(batch)
        for one in (wanted, twin_wanted):
            one.copy_(batch.sum(1, keepdim=True))
        graph.replay()
        twin_loss = twin_step()
        affine(other, torch.ones(30, device="cuda"))  # with other sizes, between two replays
        torch.testing.assert_close(loss, twin_loss, rtol=1e-3, atol=1e-4)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


def test_graphs_are_deleted_and_captured_again(quadrants):
    affine = make_affine(quadrants)
    x, w = torch.rand(50, 30, device="cuda"), torch.rand(30, device="cuda")
    affine(x, w)
    for _ in range(10):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = affine(x, w)
        x.copy_(torch.rand_like(x))
        graph.replay()
        del graph  # while it may still be running
        gc.collect()
        torch.testing.assert_close(y, affine_in_torch(x, w), rtol=1e-4, atol=1e-4)
        del y


def test_reduce_overhead(lang):
    """On Taichi, whose operators say that they cannot be captured, it runs without graphs."""
    affine = make_affine(lang)
    run = torch.compile(lambda x, w: affine(x.sin(), w).cos().sum(), mode="reduce-overhead")
    for _ in range(5):
        x, w = [torch.rand(*size, device="cuda", requires_grad=True) for size in ((50, 30), (30,))]
        mine = torch.autograd.grad(run(x, w), (x, w))
        wanted = torch.autograd.grad(affine_in_torch(x.sin(), w).cos().sum(), (x, w))
        torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-3)


def test_a_capture_that_cannot_work_raises_and_leaves_all_in_order(engine, lang):
    affine = make_affine(lang)
    x, w = torch.rand(50, 30, device="cuda"), torch.rand(30, device="cuda")
    if engine == "taichi":
        affine(x, w)
    because = {"quadrants": "compiled at the first call", "taichi": "legacy default stream"}[engine]
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.sin(x)
        with pytest.raises(ts.EngineError, match=because):
            affine(x, w)
    torch.testing.assert_close(affine(x, w), affine_in_torch(x, w), rtol=1e-4, atol=1e-4)
