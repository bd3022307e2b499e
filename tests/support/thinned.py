"""Which cases a run takes, and what each of them runs on: they take turns, commit after commit."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

import pytest

_T = TypeVar("_T")

RUNS_ON_PYTHON = pytest.StashKey[bool]()
"""Of a test: whether Python runs its kernels."""

READS_DISK = pytest.StashKey[bool]()
"""Of a test: whether it uses tinsmith's cache on disk."""

PYTHON = "python"
"""The name of the Python engine, which runs kernels that are written for either of the others."""

PYTHON_FOLDERS = frozenset({"bridge", "layers", "time"})
"""Folders whose programs are so small that Python runs them in less time than an engine needs to compile them."""

PROGRAM_FOLDERS = frozenset({"apps", "benchmarks", "census", "cli", "examples"})
"""Folders whose tests run whole programs, which train or start processes."""

COMPILER_FOLDERS = frozenset({"analyses", "benchmarks", "docs", "frontend", "fuzz", "golden", "ir", "passes"})
"""Folders whose tests look at what the compiler does: none of them uses the cache on disk."""

LONG_FOLDERS = PROGRAM_FOLDERS | {"docs", "fuzz"}
"""What the fast run leaves out."""

ENGINE_STEP = 4
"""Of so many cases that run on an engine the ordinary run takes one, where no mark says how many."""

PROGRAM_STEP = 4
"""Of so many cases in `PROGRAM_FOLDERS` the ordinary run takes one, where no mark says how many."""

COSTLY_STEP = 8
"""Of so many cases that are marked `costly` the ordinary run takes one."""

DISK_STEP = 3
"""Of so many files the tests of one use the cache on disk, with what others kept there."""

FAST_STEP = 4
"""Of so many cases on an engine the fast run takes one."""


def place(name: str, turn: int, count: int) -> int:
    """Return whose turn it is of `count`: a hash of the name, and one more at each turn."""
    return (zlib.crc32(name.encode()) + turn) % count


def choose_cases(function: str, cases: Sequence[_T], step: int, turn: int) -> list[_T]:
    """Choose one of each `step` cases in a row: each has its turn, and the missing ones of a short row have theirs."""
    rows = range(0, len(cases), step)
    chosen = (start + place(f"{function} {start}", turn, step) for start in rows)
    return [cases[number] for number in chosen if number < len(cases)]


def choose_engine(case: str, engines: int, round_: int, *, has_python: bool) -> tuple[int, bool]:
    """Choose which engine a case is written for, and whether Python runs it: each engine in turn, then Python."""
    options = engines + has_python
    chosen = place(f"engine of {case}", round_, options)
    if chosen < engines:
        return chosen, False
    return place(f"language of {case}", round_ // options, engines), True
