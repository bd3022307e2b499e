"""Runner: a program as functions, one for each assignment of threads to its launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..engines import COMPILING
from ..spec import Numbers
from ._executor import executor
from ._kind import Kind
from ._layout import Layout
from ._pace import Paces
from ._pass_text import Pass
from ._threads import Serial, Threads

Scalars = Mapping[str, Any]


class Runner:
    """What runs a program: made in parts, when calls first ask for them.

    Attributes:
        longest_tape: bytes of tape that were too many, the most of any call; 0 if there were none.

    Args:
        make: gives the program, all of whose launches use several threads.
        kind: the kind of call.
        paces: what was learned of kernels.
    """

    def __init__(self, make: Callable[[], Layout], kind: Kind, paces: Paces) -> None:
        self._make, self._kind, self._paces = make, kind, paces
        self._threads: Threads | None = None
        self._layouts: dict[Serial, Layout] = {}
        self._passes: dict[Serial, Pass] = {}
        self._first_calls: dict[Serial, tuple[Numbers, Scalars]] = {}
        self.longest_tape = 0

    @property
    def choices(self) -> dict[Serial, tuple[tuple[int, bool], ...]]:
        """By each choice of threads, how many operations the launches of the first such call had, and whether several
        threads would lose more by atomics than they gain.
        """
        threads = self.threads
        return {
            serial: tuple(zip(threads.count(*call), threads.has_dear_atomics(*call), strict=True))
            for serial, call in self._first_calls.items()
        }

    @property
    def threads(self) -> Threads:
        """What chooses how launches use threads."""
        if self._threads is None:
            with COMPILING:
                if self._threads is None:
                    self._threads = Threads(self._make(), self._kind, self._paces)
        return self._threads

    def find(self, numbers: Numbers, scalars: Scalars) -> Pass:
        """The function that runs a call."""
        threads = self._threads or self.threads
        serial = threads.choose(numbers, scalars)
        return self._passes.get(serial) or self._make_pass(serial, numbers, scalars)

    def _make_pass(self, serial: Serial, numbers: Numbers, scalars: Scalars) -> Pass:
        with COMPILING:
            if serial not in self._passes:
                layout = self.layout(serial, numbers, scalars)
                # Each launch would wake the thread pool: a thousand short ones take long together, and gain nothing. A
                # deterministic op takes one thread or several by its sizes alone: the two may differ in the last digit.
                is_fixed = self._kind.signature.is_deterministic
                watches = {} if is_fixed else self.threads.watches(serial, layout)
                self._passes[serial] = executor(layout, self._kind, watches)
            return self._passes[serial]

    def layout(self, serial: Serial, numbers: Numbers, scalars: Scalars) -> Layout:
        """The program with these choices, which were made for a call."""
        with COMPILING:
            if serial not in self._layouts:
                self._first_calls[serial] = numbers, dict(scalars)
                self._layouts[serial] = self.threads.layout(serial)
            return self._layouts[serial]
