"""A CUDA device that only keeps account: kernels run on the CPU, at once, and every rule of streams is checked.

The engine compiles for the CPU, behind a program of ours that records what it is asked, in order. Torch's functions for
streams and captures are replaced. Work on a stream is a number that counts up; a wait of one stream for another takes
over what that one has seen. So "A is certainly done before B begins" is a comparison, and a missing wait fails at once.

What fails, as it does or as it may on a device:

- a launch that does not come after all work on torch's current stream, or after each earlier launch of its program;
- a launch of a thread that does not hold the program's lock;
- work on torch's current stream before a launch is done (`work`);
- in a capture: the first launch of a kernel, work on the legacy default stream, a wait for a stream outside;
- a replay of a graph that does not own the arguments of its launches.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from typing_extensions import Self

import tinsmith as ts
from tinsmith.engines import _common, _streams, get
from tinsmith.tracing import _torch_state


class CudaError(RuntimeError):
    """What a device would raise, or do wrong."""


class FakeStream:
    """A stream of torch, and what it has certainly seen done: by stream, how many pieces of work."""

    def __init__(self, cuda: FakeCuda, handle: int) -> None:
        self.cuda, self.cuda_stream = cuda, handle
        self.seen: dict[int, int] = {}
        self.graph: FakeGraph | None = None

    def wait_stream(self, other: FakeStream) -> None:
        if self.graph is not other.graph:
            raise CudaError(f"stream {self.cuda_stream} waits for {other.cuda_stream}, which is not in its capture")
        self.cuda.log.append(("wait", self.cuda_stream, other.cuda_stream))
        for handle, count in other.seen.items():
            self.seen[handle] = max(count, self.seen.get(handle, 0))

    def add_work(self) -> tuple[int, int]:
        """Queue a piece of work; return its stream and number."""
        count = self.seen.get(self.cuda_stream, 0) + 1
        self.seen[self.cuda_stream] = count
        return self.cuda_stream, count

    def has_seen(self, work: tuple[int, int]) -> bool:
        return self.seen.get(work[0], 0) >= work[1]


class FakeGraph(torch.cuda.CUDAGraph):
    """A CUDA graph: its launches, each with a weak reference to the arguments."""

    def __new__(cls) -> Self:
        return object.__new__(cls)

    def __init__(self) -> None:
        self._tracker = None
        self.nodes: list[tuple[FakeProgram, Any, weakref.ref[FakeContext]]] = []
        self.last: dict[int, tuple[int, int]] = {}

    def replay(self) -> None:
        for program, data, reference in self.nodes:
            context = reference()
            if context is None:
                raise CudaError("a replay reads arguments that were freed")
            program.real.launch_kernel(data, context.real)


class FakeContext:
    """A launch context; unlike the engine's, it can be referenced weakly."""

    def __init__(self, cuda: FakeCuda, real: Any) -> None:
        self.cuda, self.real = cuda, real

    def __getattr__(self, name: str) -> Any:
        self.cuda.asked_of_engine[name] += 1
        return getattr(self.real, name)


class FakeKernel:
    """An engine's kernel, whose launch contexts are ours."""

    def __init__(self, cuda: FakeCuda, real: Any) -> None:
        self._cuda, self._real = cuda, real

    def make_launch_context(self) -> FakeContext:
        self._cuda.asked_of_engine["make_launch_context"] += 1
        return FakeContext(self._cuda, self._real.make_launch_context())


class FakeProgram:
    """An engine's program, without a way to set the stream."""

    def __init__(self, cuda: FakeCuda, real: Any) -> None:
        self.cuda, self.real = cuda, real
        self.handle = 0
        self.lock: Any = None
        self._loaded: set[int] = set()
        self._last: dict[int, tuple[int, int]] = {}

    def config(self) -> Any:
        return self.real.config()

    def launch_kernel(self, data: Any, context: FakeContext) -> None:
        cuda, stream = self.cuda, self.cuda.streams[self.handle]
        cuda.log.append(("launch", self.handle))
        if not self.lock._is_owned():
            raise CudaError("a launch without the lock of its program: another thread may launch on another stream")
        if stream.graph is None and cuda.is_any_capturing() and self.handle == 0:
            raise CudaError("a launch on the legacy default stream during a capture")
        if stream.graph is not None and id(data) not in self._loaded:
            raise CudaError("machine code is loaded during a capture")
        if not stream.has_seen(cuda.last_work):
            raise CudaError(f"a launch on stream {self.handle} does not wait for stream {cuda.last_work[0]}")
        # Captured launches do not run, so they overlap only those of the same graph.
        last = self._last if stream.graph is None else stream.graph.last
        for work in last.values():
            if not stream.has_seen(work):
                raise CudaError(f"launches of one program overlap, on streams {self.handle} and {work[0]}")
        last[self.handle] = cuda.last_launch = stream.add_work()
        self._loaded.add(id(data))
        if stream.graph is None:
            self.real.launch_kernel(data, context.real)
        else:
            stream.graph.nodes.append((self, data, weakref.ref(context)))


class FakeProgramWithStreams(FakeProgram):
    """A program that launches on the stream that it is told."""

    def set_current_cuda_stream(self, handle: int) -> None:
        self.cuda.log.append(("set", handle))
        self.handle = handle


class FakeCuda:
    """The device: its streams, and a log of what was asked of it.

    Attributes:
        program: the engine's program.
        log: ("launch", stream), ("set", stream) and ("wait", stream, other), in order.
        asked: how often torch was asked for a Stream object or for a capture.
        asked_of_engine: how often each method of launch contexts was called.
    """

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.asked = 0
        self.asked_of_engine = Counter[str]()
        self.streams = {0: FakeStream(self, 0)}
        self.current = self.streams[0]
        self.program: Any = None
        self.last_work: tuple[int, int] = (0, 0)
        self.last_launch: tuple[int, int] = (0, 0)

    def new_stream(self) -> FakeStream:
        handle = 100 + len(self.streams)
        self.streams[handle] = FakeStream(self, handle)
        return self.streams[handle]

    def is_any_capturing(self) -> bool:
        return any(one.graph is not None for one in self.streams.values())

    @contextmanager
    def on(self, stream: FakeStream) -> Iterator[None]:
        """Enter a context in which this is torch's current stream."""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def capture(self, graph: FakeGraph, stream: FakeStream) -> Iterator[None]:
        """Enter a context that captures work on a stream, as `torch.cuda.graph` does."""
        stream.graph = graph
        try:
            with self.on(stream):
                yield
        finally:
            stream.graph = None
            self.last_launch = (0, 0)

    def work(self) -> None:
        """Queue work of torch on its current stream, which reads what all launches before have written."""
        if not self.current.has_seen(self.last_launch):
            raise CudaError(f"work on stream {self.current.cuda_stream} does not wait for the last launch")
        self.last_work = self.current.add_work()

    # What torch is asked -----------------------------------------------------------------------
    def _count(self, value: Any) -> Any:
        self.asked += 1
        return value

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace torch's functions."""
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self._count(self.current))
        monkeypatch.setattr(torch.cuda, "default_stream", lambda device=None: self._count(self.streams[0]))
        monkeypatch.setattr(torch.cuda, "stream", self.on)
        monkeypatch.setattr(
            torch.cuda, "is_current_stream_capturing", lambda: self._count(self.current.graph is not None)
        )
        monkeypatch.setattr(_torch_state, "_raw_stream", lambda device: self.current.cuda_stream)
        find = staticmethod(lambda: self.current.graph)
        monkeypatch.setattr(torch.cuda.CUDAGraph, "get_currently_capturing_graph", find, raising=False)


@contextmanager
def run_on_fake_cuda(
    lang: ModuleType, monkeypatch: pytest.MonkeyPatch, *, has_streams: bool = True, **options: Any
) -> Iterator[FakeCuda]:
    """Start an engine anew, so that it launches on a fake device. Stop it afterwards.

    Args:
        lang: the engine's module.
        monkeypatch: replaces what torch and the engine are asked.
        has_streams: whether the program can launch on torch's streams, if the engine can.
        options: of `ts.init`.
    """
    name = lang.__name__
    cuda = FakeCuda()
    cuda.install(monkeypatch)
    monkeypatch.setattr(_streams, "STREAM_DEVICES", {"cuda", "cpu"})
    ts.init("cpu", engine=name, **options)
    runtime = get(name).runtime()
    kind = FakeProgramWithStreams if has_streams and name == "quadrants" else FakeProgram
    program = kind(cuda, runtime.prog)
    explain = get(name)._explain_no_capture  # pyright: ignore[reportAttributeAccessIssue]
    cuda.program = program
    program.lock = _streams.find_program_streams(name, runtime, program, explain).lock
    make = _common.make_launcher

    def make_launcher(cpp: Any, real: Any, data: Any, streams: Any = None) -> Any:
        return make(FakeKernel(cuda, cpp), program if real is program.real else real, data, streams)

    monkeypatch.setattr(_common, "make_launcher", make_launcher)
    try:
        yield cuda
    finally:
        # Others must not wait for a device that does not exist.
        _streams._programs.clear()
        monkeypatch.undo()
        lang.reset()
