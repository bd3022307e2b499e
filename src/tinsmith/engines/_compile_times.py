"""The time that engines take to compile kernels, added up for the whole process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Literal, NamedTuple

from .._preparation import draw_before_compiler

LONG_FRONT_END = 0.1
"""Seconds of the front end from which the compiler, which takes ten to twenty times as long, takes seconds."""


class Moment(NamedTuple):
    """The readings of two clocks at one point in time, in seconds.

    Attributes:
        wall: of the wall clock.
        processor: of the processor time that this process has used, in all of its threads.
    """

    wall: float
    processor: float

    @classmethod
    def now(cls) -> Moment:
        """Read both clocks and return their times."""
        return cls(time.perf_counter(), time.process_time())

    def seconds_since(self, start: Moment) -> float:
        """Return the seconds since an earlier moment, by the clock that counted fewer.

        Other processes make a wait long by the wall; other threads, those of a DataLoader for one, by the processor.
        """
        return min(self.wall - start.wall, self.processor - start.processor)


class EngineTimes:
    """Seconds that engines took so far to compile kernels.

    Attributes:
        front_end: from a kernel's Python text to the engine's IR.
        compiler: from the engine's IR to machine code. Engines do the last of it at a kernel's first launch, which is
            not included.
        kernels: the number of compiled kernels.
    """

    def __init__(self) -> None:
        self.front_end = self.compiler = 0.0
        self.kernels = 0
        self._last_front_end = 0.0

    @contextlib.contextmanager
    def measure(self, part: Literal["front_end", "compiler"]) -> Iterator[None]:
        """Enter a context whose time is added to a part; the compiler's also counts a kernel."""
        if part == "compiler" and self._last_front_end >= LONG_FRONT_END:
            draw_before_compiler()
        start = Moment.now()
        try:
            yield
        finally:
            seconds = Moment.now().seconds_since(start)
            setattr(self, part, getattr(self, part) + seconds)
            if part == "compiler":
                self.kernels += 1
            else:
                self._last_front_end = seconds


ENGINE_TIMES = EngineTimes()
"""The times of this process. Written while `COMPILING` is held."""
