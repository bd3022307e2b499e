"""Harness: times several implementations of one computation side by side in one process.

Machines are noisy, and differently from minute to minute. So rounds are interleaved (A B C, A B C, ...):
whatever else the machine does meets all ways alike. A round runs each way for a moment, after one call
that is not counted. What is compared are medians over rounds, and the spread of a ratio is that of the
ratios within each round. Nothing here knows what it times.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Call = Callable[[], object]
Name = TypeVar("Name", str, tuple[str, int])


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        rounds: of each way.
        moment: seconds that a way runs in a round, at least one call.
        patience: seconds that one way may take in all; a slower one takes part in fewer rounds, at least two.
        clock: returns seconds; the processor's, `time.process_time`, on a machine that does other work.
    """

    rounds: int
    moment: float = 2e-3
    patience: float = 4.0
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Figure:
    """A number with the lower and the upper quartile of its measurements."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float], middle: float | None = None) -> Figure:
        seen = sorted(values)
        low, high = (seen[0], seen[-1]) if len(seen) < 4 else statistics.quantiles(seen, n=4)[::2]
        return cls(statistics.median(seen) if middle is None else middle, low, high)


@dataclass(frozen=True)
class Timing:
    """The seconds of a call, by round."""

    rounds: Mapping[int, float]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds.values())

    @property
    def low(self) -> float:
        """The time that a fifth of the rounds stay below: what a call takes while nothing else runs."""
        return sorted(self.rounds.values())[len(self.rounds) // 5]


def timed(ways: Mapping[Name, Call], effort: Effort, finish: Call = lambda: None) -> dict[Name, Timing]:
    """Time all ways, in interleaved rounds. `finish` waits for work that a call only started."""
    plans = {name: _planned(call, effort, finish) for name, call in ways.items()}
    seconds: dict[Name, dict[int, float]] = {name: {} for name in ways}
    for number in range(effort.rounds):
        for name, call in ways.items():
            calls, stride = plans[name]
            if number % stride == 0:
                seconds[name][number] = _round(call, calls, finish, effort.clock)
    return {name: Timing(rounds) for name, rounds in seconds.items()}


def _planned(call: Call, effort: Effort, finish: Call) -> tuple[int, int]:
    """Return the number of calls in a round, and the n of every n-th round in which a slow way is timed."""
    call()  # compiles
    finish()
    seconds = _round(call, 1, finish, effort.clock)
    if seconds < 10 * effort.moment:  # a single call may be disturbed; the fastest of several is a good estimate
        seconds = min(seconds, *(_round(call, 1, finish, effort.clock) for _ in range(4)))
    seconds = max(seconds, 1e-7)  # the processor's clock may not have moved during one call
    calls = max(1, min(round(effort.moment / seconds), 1000))
    affordable = max(2, int(effort.patience / (seconds * (calls + 1))))
    return calls, max(1, effort.rounds // affordable)


def _round(call: Call, calls: int, finish: Call, clock: Callable[[], float]) -> float:
    if calls > 1:
        call()  # warm the caches, which the previous way has filled with its data
    finish()
    start = clock()
    for _ in range(calls):
        call()
    finish()
    return (clock() - start) / calls


def ratio(above: Timing, below: Timing) -> Figure:
    """Return how many times as long `above` takes as `below`: the ratio of medians, with the quartiles of the ratios by
    round.
    """
    both = [above.rounds[i] / below.rounds[i] for i in above.rounds if i in below.rounds]
    return Figure.of(both, above.median / below.median)


def slope(timings: Mapping[int, Timing]) -> Figure:
    """Return the seconds that each further unit costs, from timings by number of units: the slope of a line through
    each round.
    """
    common = set.intersection(*(set(timing.rounds) for timing in timings.values()))
    counts = list(timings)
    lines = [statistics.linear_regression(counts, [t.rounds[i] for t in timings.values()])[0] for i in common]
    middle = statistics.linear_regression(counts, [timing.median for timing in timings.values()])[0]
    return Figure.of(lines, middle)


def keep_memory() -> bool:
    """Ask the C library to keep freed memory for the next tensor, as torch does by itself on CUDA.

    By default a tensor of some megabytes is new memory each time, and the system's work to provide it, page
    by page, takes longer than many a kernel. Whether it worked: elsewhere than with glibc it does not.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt and mallopt(mmap_threshold, 1 << 30) and mallopt(trim_threshold, (1 << 31) - 1))
