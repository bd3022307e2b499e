"""Which cases a run takes, and what each of them runs on: they take turns, commit after commit."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import pytest

_T = TypeVar("_T")

RUNS_ON_PYTHON = pytest.StashKey[bool]()
"""Of a test: whether Python runs its kernels."""

PYTHON = "python"
"""The name of the Python engine, which runs kernels that are written for either of the others."""

PYTHON_FOLDERS = frozenset({"bridge", "layers", "time"})
"""Folders whose programs are so small that Python runs them in less time than an engine needs to compile them."""

LONG_FOLDERS = frozenset({"apps", "benchmarks", "census", "cli", "docs", "examples", "fuzz"})
"""What the fast run leaves out: folders whose tests start processes or train, and not much else."""

TABLE_STEP = 3
"""Of so many cases of a function that runs on an engine the ordinary run takes one, where no mark says how many."""

COSTLY_STEP = 8
"""The ordinary run takes a case that is marked `costly` at one of so many commits."""

FAST_STEP = 4
"""Of so many cases on an engine the fast run takes one."""


def place(name: str, turn: int, count: int) -> int:
    """Return whose turn it is of `count`: a hash of the name, and one more at each turn."""
    return (zlib.crc32(name.encode()) + turn) % count


def choose_cases(function: str, cases: Sequence[_T], step: int, turn: int) -> Iterator[tuple[_T, int]]:
    """Choose one of each `step` cases in a row, and return with it how often the row was through before."""
    for start in range(0, len(cases), step):
        row = cases[start : start + step]
        yield row[place(f"{function} {start}", turn, len(row))], turn // len(row)


def choose_costly_cases(cases: Iterable[str], turn: int) -> Iterator[tuple[str, int]]:
    """Choose the costly cases that run now, and return with each how often it ran before."""
    return ((case, turn // COSTLY_STEP) for case in cases if place(case, turn, COSTLY_STEP) == 0)


def choose_engine(case: str, engines: int, round_: int, *, has_python: bool) -> tuple[int, bool]:
    """Choose which engine a case is written for, and whether Python runs it: each engine in turn, then Python."""
    options = engines + has_python
    chosen = place(f"engine of {case}", round_, options)
    if chosen < engines:
        return chosen, False
    return place(f"language of {case}", round_ // options, engines), True
