"""Ctrl-C and SIGTERM as requests: the current step is finished, and the results are written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_REQUESTS = (signal.SIGINT, signal.SIGTERM)
"""The signals that ask a run to stop: Ctrl-C sends SIGINT, and a cluster's scheduler sends SIGTERM before it kills a
job.
"""


class Stop:
    """A flag that a stop was requested."""

    is_requested: bool = False


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Enter a context in which the first Ctrl-C or SIGTERM sets `is_requested`. The second of its kind acts as usual.

    Only the main thread gets signals; a loop in another thread cannot be stopped this way.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.is_requested = True
        signal.signal(number, before[number] or signal.SIG_DFL)

    # None stands for a handler that C code installed, which Python cannot restore.
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _REQUESTS}
    try:
        for number in _REQUESTS:
            signal.signal(number, ask)
        yield stop
    finally:
        for number in _REQUESTS:
            signal.signal(number, before[number] or signal.SIG_DFL)
