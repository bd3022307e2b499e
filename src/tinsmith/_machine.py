"""Machine: what it costs here to wake threads and to move memory, from which the number of threads of a launch follows.

It is measured once, in some milliseconds, when a call first needs it, and kept on disk for later processes. Where
nothing can be kept, it is `ASSUMED`, so that a process that finds no measurement behaves like the next one.

A launch on one thread takes about as long as its operations or its memory traffic, whichever is longer. On several
threads it takes its share of that, and the time to wake them. So threads pay from `Machine.break_even` on.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
import threading
import time
from dataclasses import dataclass

from ._config import config
from ._disk_cache import name_entry, read_entry, write_entry

OPERATION = 0.25e-9
"""Seconds that an operation takes on one thread, in a loop over numbers."""
OPERATION_IN_VECTORS = 0.03e-9
"""Seconds that an operation takes in a loop over elements that runs in machine vectors."""
UNCOUNTED = 1e-9
"""Seconds for each operation of a kernel that cannot be analyzed, whose operations are therefore a guess."""
LEAST_WAKE, MOST_WAKE = 50e-6, 1e-3
"""Seconds. While other programs keep the cores busy, threads wake in less than they take when the cores are idle; a
launch that wakes threads without need is several times as slow, one that does not wake them at most as many times as
there are threads."""
_ROUNDS, _PAUSE, _LONGEST = 9, 1e-3, 0.02
_BLOCK, _COPIES = 2**22, 5


@dataclass(frozen=True)
class Machine:
    """The costs of a machine.

    Attributes:
        wake: seconds to wake other threads and to wait for them.
        byte: seconds in which one thread loads or stores a byte of arrays that do not fit its own cache.
        is_measured: whether they were measured.
    """

    wake: float
    byte: float
    is_measured: bool = False

    def break_even(self, threads: int) -> float:
        """Return the time of a launch on one thread, in seconds, above which several threads are faster."""
        return math.inf if threads <= 1 else self.wake * threads / (threads - 1)


ASSUMED = Machine(130e-6, 0.0116e-9)
"""A machine of two cores that were idle: an AMD EPYC of the fourth generation."""


@functools.cache
def find_machine() -> Machine:
    """Return the costs of this machine: from disk, else measured and kept there; `ASSUMED` if nothing can be kept."""
    if not config().cache:
        return ASSUMED
    name = _name_entry()
    known = _parse(read_entry(name))
    if known is None:
        measured = measure_machine()
        write_entry(name, f"{measured.wake!r} {measured.byte!r}".encode())
        known = _parse(read_entry(name))
    return known or ASSUMED


def _name_entry() -> str:
    # Several machines may share a home folder.
    return name_entry("machine 1", platform.node(), platform.machine(), str(os.cpu_count()))


def _parse(entry: bytes | None) -> Machine | None:
    try:
        wake, byte = map(float, (entry or b"").split())
    except ValueError:
        return None
    return Machine(wake, byte, is_measured=True) if LEAST_WAKE <= wake <= MOST_WAKE and 0 < byte < 1e-6 else None


def measure_machine() -> Machine:
    """Measure the costs of this machine, in about 15 ms."""
    return Machine(min(max(_measure_wake(), LEAST_WAKE), MOST_WAKE), _measure_byte(), is_measured=True)


def _measure_wake() -> float:
    """Return the median time to wake a thread and to be woken by it, in seconds.

    It agrees with what a launch on several threads takes more than one on a single thread in both engines (Taichi
    1.7.4, Quadrants 1.3.3): they wake their threads, and are woken by the last one that ends.
    """
    asked, answered = threading.Lock(), threading.Lock()
    asked.acquire()
    answered.acquire()

    def answer() -> None:
        for _ in range(_ROUNDS):
            asked.acquire()
            answered.release()

    thread = threading.Thread(target=answer, name="tinsmith measures", daemon=True)
    thread.start()
    seconds, begin = list[float](), time.perf_counter()
    for _ in range(_ROUNDS):
        # Idle cores sleep, and take longer to wake. On a busy machine each pause may take long.
        if time.perf_counter() - begin < _LONGEST:
            time.sleep(_PAUSE)
        start = time.perf_counter()
        asked.release()
        answered.acquire()
        seconds.append(time.perf_counter() - start)
    thread.join()
    return sorted(seconds)[_ROUNDS // 2]


def _measure_byte() -> float:
    """Return the least time in which one thread copies a byte, for each byte that is loaded or stored, in seconds."""
    source, target = (ctypes.create_string_buffer(_BLOCK) for _ in range(2))
    seconds = []
    for _ in range(_COPIES):
        start = time.perf_counter()
        ctypes.memmove(target, source, _BLOCK)
        seconds.append(time.perf_counter() - start)
    return min(seconds) / (2 * _BLOCK)
