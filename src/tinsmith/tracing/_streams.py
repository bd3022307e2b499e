"""Streams: launches in order with torch's work on CUDA, and captured in torch's CUDA graphs.

A kernel is launched on torch's current stream if its engine can do that (`TorchStreamOrder`), as torch's own kernels
are: memory that torch's allocator takes back is used again only by later work on this stream. Otherwise it is launched
on CUDA's legacy default stream, which waits for torch's current stream and the other way round
(`LegacyStreamOrder`).

A caller holds the lock of the engine's program while it launches, and asks only where it must: if neither torch's
current stream nor that of the last launch is another than the legacy default stream, all is in order.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import torch

from .._errors import EngineError, refusal
from .._user_warnings import warn
from ..engines import Engine, KernelStreams, Launch, ProgramStreams, get_kernel_streams, has_streams
from . import _torch_state

_ARGUMENTS = "_tinsmith_arguments"
"""The attribute of a CUDA graph that holds the launch contexts of the kernels that it launches."""
_warned: Final = set[str]()
"""The engines whose events on side streams were warned of."""


class Order(ABC):
    """The order between kernel launches of one engine program and the work on torch's current stream.

    Attributes:
        program: the streams of the program.
    """

    def __init__(self, caller: str, device: int, kernels: Sequence[KernelStreams], program: ProgramStreams) -> None:
        """Build the order of some launches.

        Args:
            caller: the op or layer that launches, for messages.
            device: the number of the GPU.
            kernels: the kernels that are launched.
            program: the streams of their program.
        """
        self.program = program
        self._caller = caller
        self._device = device
        self._kernels = kernels

    @abstractmethod
    def begin(self, stream: int) -> None:
        """Put the launches that follow after all earlier work on torch's current stream, whose handle is `stream`.

        Call it only if `stream` or `program.last` is not 0. The caller holds `program.lock`.

        Raises:
            EngineError: a CUDA graph is being captured that the launches cannot be part of.
        """

    @abstractmethod
    def end(self) -> None:
        """Put later work on torch's current stream after the launches. Call it only if its handle is not 0."""

    def _refuse_capture(self, because: str, remedy: str) -> None:
        raise _make_capture_error(self._caller, [("engine", self.program.engine), ("because", because)], remedy)


@final
class TorchStreamOrder(Order):
    """Launches on torch's current stream.

    Launches on another stream than the last ones wait for those, since all kernels of a program share memory.
    """

    def begin(self, stream: int) -> None:
        program = self.program
        if stream and torch.cuda.is_current_stream_capturing():
            self._begin_capture()
        elif stream != program.last:
            current = torch.cuda.current_stream(self._device)
            last = program.last_stream
            current.wait_stream(torch.cuda.default_stream(self._device) if last is None else last)
            program.last, program.last_stream = stream, current
        if stream:
            assert program.set_stream is not None
            program.set_stream(stream)

    def end(self) -> None:
        assert self.program.set_stream is not None
        # Direct calls of kernels stay on the legacy default stream, where the engine's other work is.
        self.program.set_stream(0)
        self.program.kept_contexts = None

    def _begin_capture(self) -> None:
        """Check that the launches can be captured. Let the graph own their arguments.

        Nothing runs during a capture, so captured launches wait for no other ones; but those on two branches of one
        graph wait for each other.
        """
        program = self.program
        if because := program.find_obstacle():
            self._refuse_capture(because, "Start the engine without this option, or leave the op out of the capture.")
        for kernel in self._kernels:
            if kernel.obstacle:
                self._refuse_capture(kernel.obstacle, "Leave out what the reason names, or leave the op out.")
            if not kernel.is_loaded:
                words = f"the first launch of kernel `{kernel.name}` loads its machine code"
                self._refuse_capture(words, WARM_UP)
        current = torch.cuda.current_stream(self._device)
        if program.captured is not None and program.captured != current and is_capturing(program.captured):
            current.wait_stream(program.captured)
        program.captured = current
        program.kept_contexts = _find_kept_arguments(program)


WARM_UP = "Run the same calls, forward and backward, once before the capture, with the same dtypes and dims."


@final
class LegacyStreamOrder(Order):
    """Launches on the legacy default stream, which waits for torch's current stream and is waited for."""

    def begin(self, stream: int) -> None:
        program = self.program
        if stream and torch.cuda.is_current_stream_capturing():
            obstacles = [program.find_obstacle(), *[one.obstacle for one in self._kernels], _ON_LEGACY_STREAM]
            because = next(filter(None, obstacles))
            self._refuse_capture(because, "Leave it out of the capture, or use an op of Quadrants on arrays alone.")
        if stream and program.set_stream is None:
            _warn_of_events(program.engine)
        default = torch.cuda.default_stream(self._device)
        if program.last:
            default.wait_stream(program.last_stream)
            program.last, program.last_stream = 0, None
        if stream:
            default.wait_stream(torch.cuda.current_stream(self._device))

    def end(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(torch.cuda.default_stream(self._device))


_ON_LEGACY_STREAM = "fields are the engine's memory, which it uses on CUDA's legacy default stream"


def choose_orders(caller: str, device: torch.device, launches: Sequence[Launch], *, uses_fields: bool) -> list[Order]:
    """Return the order of each launch; launches that follow each other and are ordered alike share one.

    Args:
        caller: the op that launches, for messages.
        device: the GPU.
        launches: launch functions, in order.
        uses_fields: whether the kernels use fields, which direct calls of kernels may write.
    """
    orders: list[Order] = []
    kernels: list[KernelStreams] = []
    for launch in launches:
        streams = get_kernel_streams(launch)
        assert streams is not None, launch
        kind = TorchStreamOrder if streams.is_on_torchs and not uses_fields else LegacyStreamOrder
        if not orders or type(orders[-1]) is not kind or orders[-1].program is not streams.program:
            kernels = []
            orders.append(kind(caller, device.index or 0, kernels, streams.program))
        else:
            orders.append(orders[-1])
        kernels.append(streams)
    return orders


@contextmanager
def keep_order(engine: Engine, device: torch.device, caller: str) -> Iterator[None]:
    """Enter a context in which an engine launches kernels on its own memory, in order with torch's current stream.

    They are on CUDA's legacy default stream, where direct calls of kernels and the engine's other work are, too.

    Args:
        engine: the engine.
        device: where it runs; on the CPU nothing is to be done.
        caller: what launches, for messages.

    Raises:
        EngineError: a CUDA graph is being captured.
    """
    program = engine.find_streams() if has_streams(device.type) else None
    if program is None:
        yield
        return
    order = LegacyStreamOrder(caller, device.index or 0, (), program)
    with program.lock:
        stream = _torch_state.find_current_stream(device.index or 0)
        if stream or program.last:
            order.begin(stream)
        try:
            yield
        finally:
            if stream:
                order.end()


def is_capturing(stream: Any) -> bool:
    """Return True if a CUDA graph is being captured on a stream of torch."""
    with torch.cuda.stream(stream):
        return torch.cuda.is_current_stream_capturing()


def refuse_capture(caller: str, device: torch.device, because: str, remedy: str) -> None:
    """Raise EngineError if a CUDA graph is being captured on torch's current stream.

    Args:
        caller: the op or layer that cannot be captured.
        device: where it runs.
        because: why not.
        remedy: what to do instead.
    """
    if has_streams(device.type) and torch.cuda.is_current_stream_capturing():
        raise _make_capture_error(caller, [("because", because)], remedy)


def _make_capture_error(caller: str, rows: Sequence[tuple[str, str]], remedy: str) -> EngineError:
    return EngineError(refusal(f"{caller} cannot be captured in a CUDA graph", rows, remedy))


def _find_kept_arguments(program: ProgramStreams) -> list[Any]:
    """Return the list of launch contexts that the graph being captured owns.

    A captured copy of arguments to the device reads the context's memory at each replay. When the graph is deleted,
    its last replay may still be running, so the contexts are kept until a later capture, at whose start torch waits
    for the device (`torch.cuda.graph`). Where torch does not tell the graph (before 2.13), they are kept as long as
    the engine's state.
    """
    graph = _torch_state.find_captured_graph()
    if graph is None:
        return program.unowned
    known = vars(graph).get(_ARGUMENTS)
    if known is None:
        program.retired.clear()
        known = vars(graph)[_ARGUMENTS] = []
        weakref.finalize(graph, program.retired.extend, known).atexit = False
    return known


def _warn_of_events(engine: str) -> None:
    """Warn once that an engine does not launch on torch's current stream."""
    if engine in _warned:
        return
    _warned.add(engine)
    words = f"{engine} launches on CUDA's default stream, and torch's current stream is another one"
    remedy = "Each call makes both wait for each other. Use torch's default stream, or write the kernel for Quadrants."
    warn(refusal(words, remedy=remedy))
