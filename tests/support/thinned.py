"""Which cases of a test the ordinary run takes, where it is marked `thinned(n)`, and which the fast run takes."""

from __future__ import annotations

import zlib

from .engine_keeper import ENGINES

# What the fast run leaves out: folders whose tests start processes or train, and not much else.
LONG_FOLDERS = frozenset({"apps", "benchmarks", "census", "cli", "docs", "examples", "fuzz"})

# Of so many cases of a function that runs on an engine the ordinary run takes one, where no mark says how many.
TABLE_STEP = 3

# Of so many cases on an engine the fast run takes one.
FAST_STEP = 4


def choose_cases(function: str, count: int, step: int) -> list[int]:
    """One of each `step` cases in a row, chosen by a hash of the function's name and the row: it never changes.

    Every nth case would be the same engine throughout, where the engine is the parameter that changes fastest.
    """
    rows = range(0, count, step)
    return [start + zlib.crc32(f"{function} {start}".encode()) % min(step, count - start) for start in rows]


def is_in_fast_run(case: str) -> bool:
    """Whether the fast run takes a case on an engine, by a hash of its name."""
    return zlib.crc32(case.encode()) % FAST_STEP == 0


def choose_engine(function: str, place: int = 0) -> str:
    """The engine that a case is tested on where one must do; the cases of a table take turns."""
    return ENGINES[(zlib.crc32(function.encode()) + place) % len(ENGINES)]
