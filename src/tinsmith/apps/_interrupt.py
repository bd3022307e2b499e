"""Ctrl-C as a request: the current step is finished, and the results are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether a stop was requested."""

    is_requested: bool = False


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Within the block the first Ctrl-C sets `is_requested`; a second one interrupts immediately.

    Signals only reach the main thread; a loop in another thread cannot be stopped this way.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.is_requested = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
