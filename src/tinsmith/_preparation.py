"""A progress line on standard error while kernels are prepared, if that takes over two seconds.

    tinsmith: rollout forward: p2g  [=========-----------] 3/7  12 s

A separate thread draws it, since one kernel may take long, and it is erased at the end. Nothing is drawn to files and
pipes, from other threads, in child processes of Python such as a DataLoader's, and in tests.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

DELAY = 2.0
"""The seconds after which the progress of a preparation is shown."""
_INTERVAL = 0.25
_WIDTH = 20
_LONGEST = 76
"""The maximum number of characters of the line, so that it fits into a terminal."""


class ProgressLine:
    """The progress of a preparation, as one line.

    Args:
        name: what is prepared.
        total: the number of steps; 0 if it is unknown.
        stream: where the line is drawn.
        clock: returns the time in seconds.
    """

    def __init__(self, name: str, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._total = total
        self._stream = stream
        self._clock = clock
        self._start = clock()
        self._step = ""
        self._done = -1
        self._drawn = 0
        self._lock = threading.Lock()

    def begin_step(self, step: str) -> None:
        """Begin the next step, and end the previous one."""
        self._step = step
        self._done += 1

    def draw(self, *, is_due: bool = False) -> None:
        """Draw the line over the previous one, once the delay is over; at once if it `is_due`."""
        with self._lock:
            self._draw(is_due=is_due)

    def _draw(self, *, is_due: bool) -> None:
        seconds = self._clock() - self._start
        if seconds < DELAY and not is_due:
            return
        done = max(self._done, 0)
        filled = _WIDTH * done // self._total if self._total else 0
        bar = f"  [{'=' * filled}{'-' * (_WIDTH - filled)}] {done}/{self._total}" if self._total else ""
        end = f"{bar}  {seconds:.0f} s"
        step = f": {self._step}" if self._step else ""
        self._write(f"{f'tinsmith: {self._name}{step}'[: _LONGEST - len(end)]}{end}")

    def erase(self) -> None:
        """Erase the line, if one was drawn."""
        if self._drawn:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text:<{self._drawn}}")
        self._stream.flush()
        self._drawn = len(text)


_lines: list[ProgressLine] = []
"""The line of the current preparation, or an empty list."""


@contextmanager
def show_preparation(name: str, total: int = 0) -> Iterator[None]:
    """Enter a context that shows the progress of preparing an op, a layer or a rollout on a terminal, if it takes
    long.

    A nested preparation is a part of the outer one, and shows nothing itself.
    """
    stream = sys.stderr
    if _lines or stream is None or not is_watched(stream):
        yield
        return
    line, ended = ProgressLine(name, total, stream), threading.Event()

    def draw() -> None:
        wait = DELAY
        while not ended.wait(wait):
            line.draw()
            wait = _INTERVAL

    thread = threading.Thread(target=draw, name="tinsmith progress", daemon=True)
    _lines.append(line)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _lines.remove(line)
        line.erase()


def note_step(step: str) -> None:
    """Begin a step of the current preparation, if one is shown."""
    if _lines and threading.current_thread() is threading.main_thread():
        _lines[0].begin_step(step)


def draw_before_compiler() -> None:
    """Draw the line of the current preparation, if one is shown, before an engine's compiler runs for seconds.

    Engines hold the interpreter's lock meanwhile (Taichi 1.7, Quadrants 1.3), so the thread cannot draw.
    """
    if _lines and threading.current_thread() is threading.main_thread():
        _lines[0].draw(is_due=True)


def is_watched(stream: TextIO | None) -> bool:
    """Return True if a person can watch a stream: it is a terminal or a notebook, and this is the main thread."""
    if threading.current_thread() is not threading.main_thread() or multiprocessing.parent_process() is not None:
        return False
    if stream is None or is_in_test():
        return False
    return type(stream).__module__.startswith("ipykernel") or stream.isatty()


def is_in_test() -> bool:
    """Return True if pytest is running a test."""
    return "PYTEST_CURRENT_TEST" in os.environ
