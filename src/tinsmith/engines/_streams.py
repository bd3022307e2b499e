"""CUDA streams, as far as engines know of them: which stream a program's launches are on, and what a capture needs.

A stream is its handle here, a number; 0 is CUDA's legacy default stream. `tracing/_streams.py` puts launches in order
with torch's streams.

All kernels of a program share memory on the device: Quadrants 1.3.3 stores the bounds of a parallel loop in the
program's `temporaries` in one task and reads them in the next. So kernels of one program must not run at the same time
on two streams, whatever memory they were given.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

STREAM_DEVICES = {"cuda"}
"""The devices that have streams. Tests add the CPU, with a program that only records what it is asked."""
_PROGRAM = "_tinsmith_streams"
"""The attribute of an engine's state that holds the `ProgramStreams`."""
_KERNEL = "_tinsmith_kernel_streams"
"""The attribute of a launch function that holds the `KernelStreams`."""
_programs = weakref.WeakSet["ProgramStreams"]()
"""The streams of all programs that still exist."""


def has_streams(device_type: str) -> bool:
    """Return True if launches on this type of device are queued on streams."""
    return device_type in STREAM_DEVICES


class ProgramStreams:
    """The streams on which an engine's program launches kernels.

    Attributes:
        engine: the engine's name.
        set_stream: sets the stream of this thread's launches; None if the engine always uses the legacy default stream.
        find_obstacle: returns why the program's launches cannot be captured in a CUDA graph, or "".
        lock: held while a pass launches, since kernels on two streams must not be queued at the same time.
        last: the handle of the stream that the program last launched on.
        last_stream: the same as torch's object; None for the legacy default stream.
        captured: torch's object for the stream on which a launch was last captured, or None.
        kept_contexts: while a capture goes on, the list that its graph owns of launch contexts; else None.
        retired: launch contexts of graphs that were deleted, but may still be running.
        unowned: launch contexts of graphs that torch does not tell.
    """

    def __init__(self, engine: str, set_stream: Callable[[int], None] | None, find_obstacle: Callable[[], str]) -> None:
        self.engine = engine
        self.set_stream = set_stream
        self.find_obstacle = find_obstacle
        # Reentrant: a layer holds it while it runs ops.
        self.lock = threading.RLock()
        self.last = 0
        self.last_stream: Any = None
        self.captured: Any = None
        self.kept_contexts: list[Any] | None = None
        self.retired: list[Any] = []
        self.unowned: list[Any] = []
        _programs.add(self)


def wait_for_launches() -> None:
    """Wait for all launches that are not on the legacy default stream.

    Engines do not wait for them before they free the memory of a program (Quadrants 1.3.3 waits for that stream alone).
    """
    programs = [one for one in _programs if one.last or one.captured is not None]
    if programs:
        # Here, since a check of files imports this module, and needs no torch.
        import torch

        torch.cuda.synchronize()
    for one in programs:
        one.last, one.last_stream, one.captured = 0, None, None


class KernelStreams:
    """How the launches of one compiled kernel use streams.

    Attributes:
        program: the streams of its program.
        name: the kernel's name.
        is_on_torchs: whether its launches may be on torch's current stream.
        obstacle: why its launches cannot be captured in a CUDA graph, or "".
        is_loaded: whether it was launched before. The first launch loads its machine code, which a capture forbids.
    """

    def __init__(self, program: ProgramStreams, name: str, *, is_on_torchs: bool, obstacle: str = "") -> None:
        self.program = program
        self.name = name
        self.is_on_torchs = is_on_torchs
        self.obstacle = obstacle
        self.is_loaded = False

    def with_obstacle(self, obstacle: str) -> KernelStreams:
        """Return the same for launches that cannot be captured."""
        return KernelStreams(self.program, self.name, is_on_torchs=self.is_on_torchs, obstacle=obstacle)

    def note_launch(self, context: Any) -> None:
        """Record a launch. Keep its context alive if a CUDA graph may read its arguments again."""
        self.is_loaded = True
        if self.program.kept_contexts is not None:
            self.program.kept_contexts.append(context)


def find_program_streams(
    engine: str, runtime: Any, program: Any, explain_obstacle: Callable[[Any], str]
) -> ProgramStreams:
    """Return the streams of a program, made once for each state of the engine.

    Args:
        engine: the engine's name.
        runtime: the engine's state.
        program: its program.
        explain_obstacle: returns, for a program, why its launches cannot be captured, or "".
    """
    known = vars(runtime).get(_PROGRAM)
    if known is None:
        # Weak: a program that outlives its engine's state frees memory of the next one (Quadrants 1.3.3).
        find = weakref.ref(program)
        can_set = hasattr(program, "set_current_cuda_stream")

        def set_stream(handle: int) -> None:
            find().set_current_cuda_stream(handle)  # pyright: ignore[reportOptionalMemberAccess]

        known = ProgramStreams(engine, set_stream if can_set else None, lambda: explain_obstacle(find()))
        vars(runtime)[_PROGRAM] = known
    return known


def note_kernel_streams(launch: Callable[..., Any], streams: KernelStreams) -> None:
    """Attach to a launch function how its launches use streams."""
    object.__setattr__(launch, _KERNEL, streams)


def get_kernel_streams(launch: Callable[..., Any]) -> KernelStreams | None:
    """Return how the launches of a function use streams, or None if its device has none."""
    return getattr(launch, _KERNEL, None)


def copy_kernel_streams(launch: Callable[..., Any], wrapper: Callable[..., Any], obstacle: str = "") -> None:
    """Let a function that wraps a launch use streams as the launch does. `obstacle` is why it cannot be captured."""
    own = get_kernel_streams(launch)
    if own is not None:
        note_kernel_streams(wrapper, own.with_obstacle(obstacle) if obstacle else own)
