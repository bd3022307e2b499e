"""Pace: measures which launches of a kernel are so short that one thread is faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from ..engines import Launch

SERIAL_LIMIT = 400e-6
"""Seconds. A serial launch that takes longer would have been worth waking the thread pool for."""
SLOW_LAUNCHES = 4
"""The thread pool is used after this many slow launches in a row: a single one may be slow by accident."""


@dataclass(eq=False)
class Pace:
    """Measured times of serial launches of one kernel.

    Counted operations do not determine the time of a kernel whose loops end by data. A kernel whose serial launches are
    slow uses the thread pool from that number of operations on. `_started` are variants that were launched before.

    Attributes:
        clock: what launches are timed with, in seconds.
    """

    serial_below: int
    slow_in_a_row: int = 0
    # The thread's own time takes 0.4 us to read, so it is read only after a launch that was slow by the wall clock: on
    # a busy machine that launch may just have waited, and sums on several threads have other last digits each time.
    clock: Callable[[], float] = time.perf_counter
    _started: set[Launch] = field(default_factory=set)

    @property
    def limit(self) -> float:
        """Seconds that a serial launch may take."""
        return SERIAL_LIMIT

    def note(self, seconds: float, operations: int, kernels: Iterable[Launch] = ()) -> None:
        """Learn from a serial launch of these variants with so many operations: seconds for each."""
        if seconds > SERIAL_LIMIT and not self._started.issuperset(kernels):
            # an engine makes machine code at a kernel's first launch, and one call has several first launches
            self._started.update(kernels)
            return
        is_slow = seconds > SERIAL_LIMIT
        self.clock = time.thread_time if is_slow else time.perf_counter
        self.slow_in_a_row = self.slow_in_a_row + 1 if is_slow else 0
        if self.slow_in_a_row >= SLOW_LAUNCHES:
            self.serial_below = min(self.serial_below, operations)
            self.slow_in_a_row = 0


class Paces:
    """The measured times of all programs of an op, by kernel."""

    def __init__(self, serial_below: int) -> None:
        self._serial_below = serial_below
        # Weak, since a gradient is generated for every value that a kernel bakes in.
        self._by_kernel: WeakKeyDictionary[Any, Pace] = WeakKeyDictionary()

    def of(self, kernel: Any) -> Pace:
        """That of a kernel."""
        return self._by_kernel.setdefault(kernel, Pace(self._serial_below))
