"""Threads: decides which launches of a program use one thread.

Waking an engine's threads takes as long as some hundred thousand operations. So the choice is made for each kernel, by
two facts: the operations of its launch and the bytes that it moves, for which `_cost` has formulas in sizes and
arguments, against what they cost on this machine (`_machine`); and the measured time of launches on one thread
(`Pace`). The choice is a tuple of one bool for each group of launches.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from .._lazy import lazy
from .._machine import ASSUMED, Machine, find_machine
from ..engines import Launch
from ..spec import Numbers, Symbol
from ._cost import Cost, Counts
from ._key import CallKey
from ._routine import Routine, RoutineLaunch

SLOWNESS = 1.5
"""A launch on one thread that takes so many times as long as where several threads break even is slow."""
SLOW_LAUNCHES = 4
"""The thread pool is used after this many slow launches in a row: a single one may be slow by accident."""


@dataclass(eq=False)
class Pace:
    """The measured times of one kernel's launches on one thread.

    The number of operations does not determine the time of a kernel whose loops depend on data. If a kernel's launches
    on one thread are slow, it uses the thread pool from that number of operations on.

    Attributes:
        serial_below: launches with fewer operations use one thread,
        bytes_below: if they also move fewer bytes than this.
        break_even: the seconds on one thread above which several are faster.
        slow_in_a_row: the number of successive slow launches.
        clock: the function that measures time, in seconds.
        _started: the compiled variants that were launched before.
    """

    serial_below: float
    bytes_below: float = math.inf
    break_even: float = ASSUMED.break_even(2)
    slow_in_a_row: int = 0
    # The thread's own time takes 0.4 us to read, so it is read only after a launch that was slow by the wall clock: on
    # a busy machine that launch may just have waited, and sums on several threads have other last digits each time.
    clock: Callable[[], float] = time.perf_counter
    _started: set[Launch] = field(default_factory=set)

    @property
    def limit(self) -> float:
        """The time in seconds above which a launch on one thread is slow."""
        return SLOWNESS * self.break_even

    def note(self, seconds: float, operations: int, kernels: Iterable[Launch] = ()) -> None:
        """Learn that a launch of these variants on one thread, with so many operations, took so many seconds."""
        if seconds > self.limit and not self._started.issuperset(kernels):
            # An engine generates machine code at a kernel's first launch, and a call may have several of these.
            self._started.update(kernels)
            return
        is_slow = seconds > self.limit
        self.clock = time.thread_time if is_slow else time.perf_counter
        self.slow_in_a_row = self.slow_in_a_row + 1 if is_slow else 0
        if self.slow_in_a_row >= SLOW_LAUNCHES:
            self.serial_below = min(self.serial_below, operations)
            self.slow_in_a_row = 0


class Paces:
    """The measured times of the kernels of an op, in all its programs.

    `serial_below` is the user's bound in operations; None if the machine's costs decide.
    """

    def __init__(self, serial_below: int | None) -> None:
        self.serial_below = serial_below
        # Weak, since a gradient is generated for every value that a kernel bakes in.
        self._by_kernel: WeakKeyDictionary[Any, Pace] = WeakKeyDictionary()

    def find_pace(self, cost: Cost, counts: Counts | None, machine: Machine) -> Pace:
        """Return the measured times of a kernel."""
        pace = self._by_kernel.get(cost.kernel)
        if pace is None:
            own = self.serial_below
            bounds = cost.bounds(counts, machine)
            pace = Pace(bounds.operations, bounds.bytes, bounds.seconds) if own is None else Pace(own)
            pace = self._by_kernel.setdefault(cost.kernel, pace)
        return pace


Serial = tuple[bool, ...]
"""For each group of launches of a program, whether it uses one thread."""
Scalars = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Group:
    """Launches that use threads alike: of one kernel, with equally many operations.

    Attributes:
        name: the kernel's name.
        formula: the number of operations of a launch per parallel loop, as a Python expression.
        traffic: the number of bytes that it loads and stores per parallel loop, as a Python expression; "" if the
            operations alone decide.
        loss: the time that several threads lose by atomics, as a Python expression: above 0, one thread is faster.
        pace: the measured times of the kernel.
        launches: the launches of the routine.
        has_parallel_loops: whether several threads can share a launch; True if the source cannot be analyzed.
    """

    name: str
    formula: str
    traffic: str
    loss: str
    pace: Pace
    launches: tuple[RoutineLaunch, ...]
    has_parallel_loops: bool


class Threads:
    """Chooses which launches of a routine use one thread.

    Attributes:
        groups: the launches that may use one thread; () if there is nothing to choose.
        parallel: the routine whose launches all use several threads.
        choose: returns the choice, one bool for each group, given the numbers of a call's sizes and its scalars.
    """

    def __init__(self, routine: Routine, key: CallKey, paces: Paces) -> None:
        self.parallel = routine
        self.groups = _group_launches(routine, key, paces) if key.device.type == "cpu" else ()
        choices = (_write_choice(one, f"pace{place}") for place, one in enumerate(self.groups))
        paces_by_name = {f"pace{place}": group.pace for place, group in enumerate(self.groups)}
        self.choose: Callable[[Numbers, Scalars], Serial] = _write_function(key, choices, paces_by_name)
        self._key = key

    @lazy
    def count(self) -> Callable[[Numbers, Scalars], tuple[int, ...]]:
        """Generate the function that counts the operations of each group."""
        return _write_function(self._key, (one.formula for one in self.groups), {})

    @lazy
    def has_dear_atomics(self) -> Callable[[Numbers, Scalars], Serial]:
        """Generate the function that says of each group whether atomics would make several threads slower than one."""
        return _write_function(self._key, (f"{one.loss} > 0" for one in self.groups), {})

    def routine(self, serial: Serial) -> Routine:
        """Return the routine in which the launches that `serial` chooses use one thread."""
        chosen = {launch for place, group in enumerate(self.groups) if serial[place] for launch in group.launches}
        if not chosen:
            return self.parallel
        return self.parallel.with_launches(lambda one: one.on_one_thread() if one in chosen else one)

    def make_timers(self, serial: Serial, routine: Routine) -> dict[RoutineLaunch, LaunchTimer]:
        """Return the timers of a routine that the method `routine` returned, for its launches on one thread."""
        timers = [LaunchTimer(self, place) for place in range(len(self.groups))]
        # Where several threads never pay, nothing can be learned.
        groups = ((place, one) for place, one in enumerate(self.groups) if math.isfinite(one.pace.limit))
        places = {launch: place for place, group in groups for launch in group.launches}
        pairs = zip(self.parallel.launches, routine.launches, strict=True)
        places_after = ((after, places.get(before)) for before, after in pairs)
        return {after: timers[place] for after, place in places_after if place is not None and serial[place]}


class LaunchTimer:
    """Learns how long the launches of a group take.

    Attributes:
        pace: the measured times.
    """

    def __init__(self, threads: Threads, place: int) -> None:
        self._threads = threads
        self._place = place
        self.pace = threads.groups[place].pace

    def note(self, seconds: float, numbers: Numbers, scalars: Scalars, kernels: Sequence[Any]) -> None:
        """Record how long a launch on one thread took, to choose the number of threads of later launches."""
        self.pace.note(seconds, self._threads.count(numbers, scalars)[self._place], kernels)


def _write_choice(group: Group, pace: str) -> str:
    """Return a Python expression that is true if launches of a group use one thread.

    If the pace's `serial_below` is 0, it is never true.
    """
    is_short = f"{group.formula} < {pace}.serial_below"
    if group.traffic:
        is_short = f"({is_short} and {group.traffic} < {pace}.bytes_below)"
    return is_short if group.loss == "0" else f"({is_short} or {group.loss} > 0 < {pace}.serial_below)"


def _group_launches(routine: Routine, key: CallKey, paces: Paces) -> tuple[Group, ...]:
    costs = [(launch, cost) for launch in routine.launches if (cost := launch.cost(key)) is not None]
    repeats = Counter(cost.kernel for _, cost in costs)
    # A deterministic op chooses by sizes and arguments alone.
    is_fixed = paces.serial_below is not None or key.signature.is_deterministic
    machine = ASSUMED if is_fixed else find_machine()
    counted: dict[Any, Counts] = {}
    grouped: dict[tuple[Pace, str, str, str, bool], list[RoutineLaunch]] = {}
    for launch, cost in costs:
        # The choice of a deterministic op is the same for any number of threads.
        weighed = cost._replace(threads=2) if key.signature.is_deterministic else cost
        counts = cost.count_work(key, counted)
        pace, formula = paces.find_pace(weighed, counts, machine), cost.formula(key, counts, repeats[cost.kernel])
        traffic = cost.traffic(key, counts) if math.isfinite(pace.bytes_below) else ""
        alike = pace, formula, traffic, cost.loss_by_atomics(key, counts), cost.has_parallel_loops
        grouped.setdefault(alike, []).append(launch)
    return tuple(
        Group(launches[0].name, formula, traffic, loss, pace, tuple(launches), has_parallel_loops)
        for (pace, formula, traffic, loss, has_parallel_loops), launches in grouped.items()
    )


def _write_function(
    key: CallKey, results: Iterable[str], names: Mapping[str, Any]
) -> Callable[[Numbers, Scalars], Any]:
    """Generate a function of a call's numbers and scalars that returns the values of Python expressions."""
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
