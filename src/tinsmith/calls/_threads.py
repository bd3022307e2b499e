"""Threads: decides which launches of a program use one thread.

Waking an engine's threads takes as long as some hundred thousand operations. So the choice is made for each kernel: by
the operations of its launch, for which `_cost` has a formula in sizes and arguments, and by the measured time of
launches on one thread (`Pace`). The choice is a tuple of one bool for each group of launches.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from .._lazy import lazy
from ..engines import Launch
from ..spec import Numbers, Symbol
from ._key import CallKey
from ._routine import Routine, RoutineLaunch

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


Serial = tuple[bool, ...]
"""For each group of launches of a program, whether it uses one thread."""
Scalars = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Group:
    """Launches that are run alike: of one kernel, with equally many operations.

    Attributes:
        name: the kernel's.
        formula: the operations of a launch, for each loop that wakes threads, as Python.
        loss: what several threads lose by atomics, as Python: above 0, one thread is quicker.
        pace: what was learned of the kernel.
        launches: those of the program.
        has_parallel_loops: whether several threads can share a launch; true if the source does not tell.
    """

    name: str
    formula: str
    loss: str
    pace: Pace
    launches: tuple[RoutineLaunch, ...]
    has_parallel_loops: bool


class Threads:
    """Chooses, for the launches of a program.

    Attributes:
        groups: launches that may use one thread; none where there is nothing to choose.
        parallel: the routine whose launches all use several threads.
        choose: which of them do, for the numbers of a call's sizes and its scalars.
    """

    def __init__(self, routine: Routine, key: CallKey, paces: Paces) -> None:
        self.parallel = routine
        self.groups = _group_launches(routine, key, paces) if key.device.type == "cpu" else ()
        choices = (_choice(one, f"pace{place}") for place, one in enumerate(self.groups))
        paces_by_name = {f"pace{place}": group.pace for place, group in enumerate(self.groups)}
        self.choose: Callable[[Numbers, Scalars], Serial] = _write_function(key, choices, paces_by_name)
        self._key = key

    @lazy
    def count(self) -> Callable[[Numbers, Scalars], tuple[int, ...]]:
        """The function that counts the operations of each group."""
        return _write_function(self._key, (one.formula for one in self.groups), {})

    @lazy
    def has_dear_atomics(self) -> Callable[[Numbers, Scalars], Serial]:
        """The function that says of each group whether several threads would lose more by atomics than they gain."""
        return _write_function(self._key, (f"{one.loss} > 0" for one in self.groups), {})

    def routine(self, serial: Serial) -> Routine:
        """The program whose chosen launches use one thread."""
        chosen = {launch for place, group in enumerate(self.groups) if serial[place] for launch in group.launches}
        if not chosen:
            return self.parallel
        return self.parallel.with_launches(lambda one: one.on_one_thread() if one in chosen else one)

    def make_timers(self, serial: Serial, routine: Routine) -> dict[RoutineLaunch, LaunchTimer]:
        """What learns from the launches of a routine that `routine` made; of those on one thread alone."""
        timers = [LaunchTimer(self, place) for place in range(len(self.groups))]
        places = {launch: place for place, group in enumerate(self.groups) for launch in group.launches}
        pairs = zip(self.parallel.launches, routine.launches, strict=True)
        places_after = ((after, places.get(before)) for before, after in pairs)
        return {after: timers[place] for after, place in places_after if place is not None and serial[place]}


class LaunchTimer:
    """Learns from launches of a group how long they take.

    Attributes:
        pace: what was learned.
    """

    def __init__(self, threads: Threads, place: int) -> None:
        self._threads = threads
        self._place = place
        self.pace = threads.groups[place].pace

    def note(self, seconds: float, numbers: Numbers, scalars: Scalars, kernels: Sequence[Any]) -> None:
        """Learn from a launch of these variants: seconds for each loop that would have woken threads."""
        self.pace.note(seconds, self._threads.count(numbers, scalars)[self._place], kernels)


def _choice(group: Group, pace: str) -> str:
    """Whether launches of a group use one thread, as Python. One whose bound is 0 never does."""
    is_short = f"{group.formula} < {pace}.serial_below"
    return is_short if group.loss == "0" else f"({is_short} or {group.loss} > 0 < {pace}.serial_below)"


def _group_launches(routine: Routine, key: CallKey, paces: Paces) -> tuple[Group, ...]:
    costs = [(launch, cost) for launch in routine.launches if (cost := launch.cost(key)) is not None]
    repeats = Counter(cost.kernel for _, cost in costs)
    grouped: dict[tuple[Any, str, str, bool], list[RoutineLaunch]] = {}
    for launch, cost in costs:
        formula, loss = cost.formula(key, repeats[cost.kernel]), cost.loss_by_atomics(key)
        alike = cost.kernel, formula, loss, cost.has_parallel_loops
        grouped.setdefault(alike, []).append(launch)
    return tuple(
        Group(launches[0].name, formula, loss, paces.of(kernel), tuple(launches), has_parallel_loops)
        for (kernel, formula, loss, has_parallel_loops), launches in grouped.items()
    )


def _write_function(
    key: CallKey, results: Iterable[str], names: Mapping[str, Any]
) -> Callable[[Numbers, Scalars], Any]:
    """Write a function that evaluates expressions for a call's numbers and scalars, and returns their values."""
    sizes = "".join(f"{Symbol(place)}, " for place in range(key.sizing.symbols))
    lines = [
        "def work_out(numbers, scalars):",
        f"    {sizes}elements, = numbers",
        f"    return ({''.join(f'{one}, ' for one in results)})",
    ]
    known = dict(names)
    exec(compile("\n".join(lines), f"<threads of {key.signature.op}>", "exec"), known)
    # Taken out of its own globals, or the cycle would keep it alive until the garbage collector runs.
    return known.pop("work_out")
