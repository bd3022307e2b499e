"""Launches in order with torch's streams, and in CUDA graphs, on a device that only keeps account."""

import gc
import sys
import warnings
from collections import Counter

import pytest
import torch

import tinsmith as ts
from support.fake_cuda import CudaError, FakeContext, FakeGraph, run_on_fake_cuda
from tinsmith.engines import _streams as _engine_streams
from tinsmith.engines import get
from tinsmith.tracing import _streams

pytestmark = pytest.mark.compiled_engine


@pytest.fixture
def quadrants(request, monkeypatch):
    """Quadrants on a fake device, which launches on torch's streams."""
    import quadrants

    with run_on_fake_cuda(quadrants, monkeypatch) as cuda:
        yield quadrants, cuda


@pytest.fixture
def taichi(request, monkeypatch):
    """Taichi on a fake device, which launches on the legacy default stream."""
    import taichi

    monkeypatch.setattr(_streams, "_warned", set())
    with run_on_fake_cuda(taichi, monkeypatch) as cuda:
        yield taichi, cuda


def make_triple(lang, **options):
    @ts.op("x[n] -> y[n]", **options)
    @lang.kernel
    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3.0 * x[i] * x[i]

    return triple


def run_both(op, x):
    """Run forward and backward; return the output and the gradient."""
    y = op(x)
    return y, torch.autograd.grad(y, x, torch.ones_like(y))[0]


def check_both(op, cuda, x):
    cuda.work()
    y, slope = run_both(op, x)
    cuda.work()
    torch.testing.assert_close(y.detach(), 3 * x.detach().square())
    torch.testing.assert_close(slope, 6 * x.detach())


def test_on_the_default_stream_torch_is_asked_for_nothing_but_its_handle(quadrants):
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5, requires_grad=True)
    check_both(triple, cuda, x)
    assert cuda.log == [("launch", 0)] * 2
    cuda.log.clear()
    cuda.asked = 0
    check_both(triple, cuda, x)
    assert cuda.log == [("launch", 0)] * 2
    assert cuda.asked == 0


def test_on_a_side_stream_the_program_is_told_the_stream_and_no_event_is_used(quadrants):
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5, requires_grad=True)
    side = cuda.new_stream()
    handle = side.cuda_stream
    with cuda.on(side):
        check_both(triple, cuda, x)
        cuda.log.clear()
        check_both(triple, cuda, x)
    assert cuda.log == [("set", handle), ("launch", handle), ("set", 0)] * 2


def test_launches_on_another_stream_wait_for_the_last_ones(quadrants):
    """All kernels of a program share memory on the device, whatever arrays they are given."""
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5)
    one, other = cuda.new_stream(), cuda.new_stream()
    triple(x)
    for stream in (one, other, cuda.streams[0], other, one):
        cuda.last_work = (0, 0)
        with cuda.on(stream):
            triple(x)
    waits = [entry for entry in cuda.log if entry[0] == "wait"]
    a, b = one.cuda_stream, other.cuda_stream
    assert waits == [("wait", *pair) for pair in [(a, 0), (b, a), (0, b), (b, 0), (a, b)]]


@pytest.mark.parametrize("left_out", ["begin", "end", "wait"])
def test_the_device_notices_what_is_left_out(quadrants, monkeypatch, left_out):
    """A check of the fake: without any one step, it fails."""
    lang, cuda = quadrants
    triple, x, side = make_triple(lang), torch.rand(5), cuda.new_stream()
    triple(x)
    assert stays_in_order(cuda, triple, x, side)
    triple(x)
    if left_out == "wait":
        monkeypatch.setattr(type(side), "wait_stream", lambda *_: None)
    else:
        monkeypatch.setattr(_streams.TorchStreamOrder, left_out, lambda *_: None)
    assert not stays_in_order(cuda, triple, x, side)


def stays_in_order(cuda, op, x, side):
    """Return True if a call on a side stream is in order with work there, and leaves direct calls where they were."""
    cuda.last_work = cuda.last_launch = (0, 0)
    try:
        with cuda.on(side):
            cuda.work()
            op(x)
            cuda.work()
    except CudaError:
        return False
    return cuda.program.handle == 0


def test_the_stream_is_set_back_if_a_launch_fails(quadrants, monkeypatch):
    lang, cuda = quadrants
    triple, x, side = make_triple(lang), torch.rand(5), cuda.new_stream()
    triple(x)
    with cuda.on(side):
        cuda.last_work = (0, 1000)
        with pytest.raises(CudaError):
            triple(x)
    assert cuda.log[-1] == ("set", 0)
    cuda.last_work = (0, 0)
    triple(x)


def test_a_kernel_that_uses_fields_stays_where_direct_calls_are(quadrants):
    lang, cuda = quadrants
    scale = lang.field(lang.f32, shape=())

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scaled(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = scale[None] * x[i]

    scale[None] = 2.0
    x, side = torch.rand(5, requires_grad=True), cuda.new_stream()
    with cuda.on(side):
        cuda.work()
        y, slope = run_both(scaled, x)
        cuda.work()
    torch.testing.assert_close(y, 2 * x)
    torch.testing.assert_close(slope, torch.full((5,), 2.0))
    assert {entry for entry in cuda.log if entry[0] == "launch"} == {("launch", 0)}


def test_the_engines_own_reverse_stays_on_the_default_stream(quadrants):
    lang, cuda = quadrants
    triple = make_triple(lang, adjoint="engine")
    x, side = torch.rand(5, requires_grad=True), cuda.new_stream()
    with cuda.on(side):
        check_both(triple, cuda, x)
        cuda.log.clear()
        check_both(triple, cuda, x)
    handle = side.cuda_stream
    forward = [("set", handle), ("launch", handle), ("set", 0)]
    backward = [("wait", 0, handle), ("wait", 0, handle), ("launch", 0), ("wait", handle, 0)]
    assert cuda.log == [("wait", handle, 0), *forward, *backward]


def test_taichi_uses_events_and_warns_once(taichi):
    lang, cuda = taichi
    triple, x = make_triple(lang), torch.rand(5, requires_grad=True)
    side = cuda.new_stream()
    with cuda.on(side), pytest.warns(UserWarning, match="taichi launches on CUDA's default stream") as caught:
        check_both(triple, cuda, x)
    assert len(caught) == 1
    cuda.log.clear()
    with cuda.on(side), warnings.catch_warnings():
        warnings.simplefilter("error")
        check_both(triple, cuda, x)
    handle = side.cuda_stream
    assert cuda.log == [("wait", 0, handle), ("launch", 0), ("wait", handle, 0)] * 2
    cuda.log.clear()
    check_both(triple, cuda, x)
    assert cuda.log == [("launch", 0)] * 2


def test_a_version_that_cannot_set_the_stream_uses_events(monkeypatch):
    import quadrants as lang

    monkeypatch.setattr(_streams, "_warned", set())
    with run_on_fake_cuda(lang, monkeypatch, has_streams=False) as cuda:
        triple, x, side = make_triple(lang), torch.rand(5, requires_grad=True), cuda.new_stream()
        with cuda.on(side), pytest.warns(UserWarning, match="quadrants launches on CUDA's default stream"):
            check_both(triple, cuda, x)
        assert {entry for entry in cuda.log if entry[0] == "launch"} == {("launch", 0)}
        with cuda.capture(FakeGraph(), side), pytest.raises(ts.EngineError, match="this version of Quadrants"):
            triple(x)


def test_a_restart_waits_for_side_streams(quadrants, monkeypatch):
    lang, cuda = quadrants
    triple, x, waits = make_triple(lang), torch.rand(5), []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(get("quadrants").runtime()))
    triple(x)
    _engine_streams.wait_for_launches()
    # All was on the default stream, which the engine waits for itself.
    assert not waits
    with cuda.on(cuda.new_stream()):
        triple(x)
    before = get("quadrants").runtime()
    ts.init("cpu", engine="quadrants")
    assert waits == [before]


# CUDA graphs ----------------------------------------------------------------------------------
def test_a_graph_runs_forward_and_backward_again(quadrants):
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5, requires_grad=True)
    run_both(triple, x)
    graph, stream = FakeGraph(), cuda.new_stream()
    with cuda.capture(graph, stream):
        y = triple(x)
        # Held as a graph's own pool of memory would.
        cotangent = torch.ones_like(y)
        (slope,) = torch.autograd.grad(y, x, cotangent)
    for entry in cuda.log[2:]:
        assert entry[0] != "wait"
    gc.collect()
    for _ in range(2):
        with torch.no_grad():
            x.copy_(torch.rand(5))
        graph.replay()
        torch.testing.assert_close(y.detach(), 3 * x.detach().square())
        torch.testing.assert_close(slope, 6 * x.detach())
    assert len(graph.nodes) == 2


def test_a_graph_owns_its_arguments_until_the_device_was_waited_for(quadrants):
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5)
    triple(x)
    graph, stream = FakeGraph(), cuda.new_stream()
    with cuda.capture(graph, stream):
        triple(x)
    (context,) = [node[2] for node in graph.nodes]
    del graph
    gc.collect()
    # Its last replay may be running.
    assert context() is not None
    second = FakeGraph()
    with cuda.capture(second, stream):
        triple(x)
    assert context() is None
    assert second.nodes[0][2]() is not None
    kept = [one for one in gc.get_objects() if isinstance(one, FakeContext)]
    triple(x)  # not captured, so nothing is kept
    assert len([one for one in gc.get_objects() if isinstance(one, FakeContext)]) == len(kept) == 1


def test_branches_of_a_graph_wait_for_each_other(quadrants):
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5)
    triple(x)
    graph, first, second = FakeGraph(), cuda.new_stream(), cuda.new_stream()
    with cuda.capture(graph, first), cuda.capture(graph, second):
        with cuda.on(first):
            triple(x)
        triple(x)
    assert ("wait", second.cuda_stream, first.cuda_stream) in cuda.log


def capture_error(cuda, op, *arguments):
    """Return the error of a call in a capture. Nothing was launched by it."""
    cuda.log.clear()
    graph = FakeGraph()
    with cuda.capture(graph, cuda.new_stream()), pytest.raises(ts.EngineError) as caught:
        op(*arguments)
    assert not graph.nodes
    assert not cuda.log
    return str(caught.value)


def test_a_first_call_is_not_captured(quadrants):
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5, requires_grad=True)
    words = capture_error(cuda, triple, x)
    assert words.startswith("op `triple` cannot be captured in a CUDA graph")
    assert "compiled at the first call" in words
    assert words.endswith("once before the capture, with the same dtypes and dims.")
    y = triple(x)
    words = capture_error(cuda, lambda: torch.autograd.grad(y, x, torch.ones(5)))
    assert words.startswith("op `triple` cannot be captured")
    check_both(triple, cuda, x)


def test_a_kernel_that_was_compiled_and_not_launched_is_not_captured(quadrants):
    lang, cuda = quadrants

    @ts.op("x[*b, n] -> y[*b, n]")
    @lang.kernel
    def triple(x: lang.types.ndarray(dtype=lang.f32, ndim=1), y: lang.types.ndarray(dtype=lang.f32, ndim=1)):
        # Iterations that share a variable are not batched: one launch for each sample.
        for i in x:
            y[i] = 3.0 * x[i]

    triple(torch.rand(0, 5))
    if not cuda.log:
        words = capture_error(cuda, triple, torch.rand(2, 5))
        assert "the first launch of kernel" in words


def test_what_reads_from_the_device_is_not_captured(quadrants):
    lang, cuda = quadrants
    x = torch.rand(5, requires_grad=True)
    guarded = make_triple(lang, check_bounds=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        patch.setattr("tinsmith.compiling._bounds_guard.GuardedLaunch._record", lambda *_: [0, 0, 0, 0])
        guarded(x)
    assert "check_bounds=True" in capture_error(cuda, guarded, x)
    reverse = make_triple(lang, adjoint="engine")
    y, _ = run_both(reverse, x)
    y = reverse(x)
    words = capture_error(cuda, lambda: torch.autograd.grad(y, x, torch.ones(5)))
    assert "the engine's own reverse mode waits for the device" in words


def test_a_tape_of_counted_length_is_not_captured(quadrants):
    lang, cuda = quadrants

    @ts.op("x[n], k[n]: i32 -> y[n]")
    @lang.kernel
    def power(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = x[i]
            for _ in range(k[i]):
                v = v * lang.sin(v)
            y[i] = v

    x, k = torch.rand(5, requires_grad=True), torch.arange(5, dtype=torch.int32)
    run_both(lambda x: power(x, k), x)
    y = power(x, k)
    words = capture_error(cuda, lambda: torch.autograd.grad(y, x, torch.ones(5)))
    assert words.startswith("the backward pass of op `power` cannot be captured")


@pytest.mark.parametrize("option", ["debug", "kernel_profiler"])
def test_an_option_that_waits_for_each_kernel_is_named(monkeypatch, option):
    import quadrants as lang

    with run_on_fake_cuda(lang, monkeypatch, **{option: True}) as cuda:
        triple, x = make_triple(lang), torch.rand(5)
        triple(x)
        assert f"{option}=True" in capture_error(cuda, triple, x)


def test_taichi_is_not_captured(taichi):
    lang, cuda = taichi
    triple, x = make_triple(lang), torch.rand(5)
    triple(x)
    words = capture_error(cuda, triple, x)
    assert "Taichi launches on CUDA's legacy default stream" in words


def find_tags(op):
    """Return the tags of an op's operator, which a graph of torch.compile calls."""
    graphs = []
    run = torch.compile(op, fullgraph=True, backend=lambda graph, _: graphs.append(graph) or graph)
    run(torch.rand(3))
    (node,) = [one for one in graphs[0].graph.nodes if one.op == "call_function" and "tinsmith" in str(one.target)]
    return node.target.tags


@pytest.mark.each_engine
def test_operators_that_cannot_be_captured_say_so_to_torch(engine, lang):
    """So `torch.compile(mode="reduce-overhead")` runs them between its graphs."""
    unsafe = torch.Tag.cudagraph_unsafe
    assert (unsafe in find_tags(make_triple(lang))) == (engine == "taichi")
    assert unsafe in find_tags(make_triple(lang, check_bounds=True))


def test_a_layer_on_fields_is_not_captured(quadrants):
    lang, cuda = quadrants
    a, b = lang.field(lang.f32, shape=4, needs_grad=True), lang.field(lang.f32, shape=4, needs_grad=True)

    @lang.kernel
    def double():
        for i in a:
            b[i] = 2.0 * a[i]

    layer = ts.EmptyTin()
    layer.register_kernel(double).register_input_field(a).register_output_field(b).finish()
    x = torch.rand(4, requires_grad=True)
    side = cuda.new_stream()
    with cuda.on(side):
        cuda.work()
        y, slope = run_both(layer, x)
        cuda.work()
    torch.testing.assert_close(y, 2 * x)
    torch.testing.assert_close(slope, torch.full((4,), 2.0))
    words = capture_error(cuda, layer, x)
    assert "fields are the engine's memory" in words


def test_a_kernel_of_a_layer_that_only_clears_gradients_is_in_order(quadrants):
    lang, cuda = quadrants
    a, b = lang.field(lang.f32, shape=4, needs_grad=True), lang.field(lang.f32, shape=4, needs_grad=True)

    @lang.kernel
    def clear():
        for i in a:
            a.grad[i] = 0.0

    @lang.kernel
    def double():
        for i in a:
            b[i] = 2.0 * a[i]

    layer = ts.EmptyTin().register_kernel(clear).register_kernel(double)
    layer.register_input_field(a).register_output_field(b).finish()
    x, side = torch.rand(4, requires_grad=True), cuda.new_stream()
    with cuda.on(side):
        cuda.work()
        y, slope = run_both(layer, x)
        cuda.work()
    torch.testing.assert_close(y, 2 * x)
    torch.testing.assert_close(slope, torch.full((4,), 2.0))


def test_kernels_before_a_value_for_python_are_in_order(quadrants):
    lang, cuda = quadrants
    a, b = lang.field(lang.f32, shape=4), lang.field(lang.f32, shape=4)

    @lang.kernel
    def double():
        for i in a:
            b[i] = 2.0 * a[i]

    @lang.kernel
    def first() -> lang.f32:
        return b[0]

    def forward():
        double()
        if first() > 0.0:
            double()

    run, side = ts.rollout(forward, {"a": a}, {"b": b}), cuda.new_stream()
    with cuda.on(side):
        cuda.work()
        torch.testing.assert_close(run(torch.ones(4)), torch.full((4,), 2.0))
        cuda.work()


# What a call asks -----------------------------------------------------------------------------
def count_builtins(call):
    """Return how often a call calls each function of torch and of the engine that is written in C."""
    counts = Counter()

    def note(frame, event, function):
        if event == "c_call":
            module = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
            if module.startswith(("torch", "quadrants", "taichi", "support")):
                counts[function.__name__] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


def test_a_call_asks_torch_and_the_engine_no_more_than_it_must(quadrants):
    """Two kernels, forward and backward: no memory is zeroed that a kernel fills, and nothing is read back."""
    lang, cuda = quadrants
    triple, x = make_triple(lang), torch.rand(5, requires_grad=True)
    g = torch.ones(5)
    for _ in range(3):
        torch.autograd.grad(triple(x), x, g)
    counts = []
    y = triple(x)
    for call in (lambda: triple(x), lambda: torch.autograd.grad(y, x, g)):
        cuda.asked_of_engine.clear()
        counts.append((count_builtins(call), cuda.asked_of_engine.copy()))
    (forward, launched), (backward, reversed_) = counts
    once = {"make_launch_context": 1, "set_arg_external_array_with_shape": 1}
    assert launched == reversed_ == once
    assert forward == EMPTY_ONCE + Counter(
        ["_are_functorch_transforms_active", "_len_torch_dispatch_stack", "_is_any_autocast_enabled"]
        + ["_get_tracing_state", "_current_graph_task_id", "is_contiguous", "is_neg", "is_grad_enabled", "apply"]
    )
    # An address twice: those of x and of the cotangent are looked at before they are taken.
    assert backward == EMPTY_ONCE + Counter(
        ["size", "_stash_obj_in_tls", "run_backward", "_remove_obj_from_tls", "data_ptr", "data_ptr"]
        + ["_are_functorch_transforms_active", "is_legacy_batchedtensor", "is_contiguous", "is_neg", "is_grad_enabled"]
    )


EMPTY_ONCE = Counter(["empty_like", "data_ptr", "data_ptr", "_has_torch_function"])
"""What a pass of one kernel asks, forward and backward: the gradient is stored by its kernel, so it is not zeroed."""
