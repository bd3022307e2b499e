"""How long the compiler takes from a kernel's Python source to the text of its gradient, before an engine compiles it.

    python benchmarks/compile_time.py [--quick] [--rounds 5] [--only volume] [--against CHECKOUT] [--out FOLDER]

Ten ops, from small to large, and two whose size is a parameter (`_compile_kernels`), on both engines, by parts:

- lower: making the op, which reads its source, writes it as IR, and looks for races;
- adjoint: the gradient by all inputs, as IR;
- pipelines: the passes over the gradient's kernels, up to what an engine's compiler makes machine vectors of;
- print: these kernels as text.

The first call, forward and backward, is another measurement, in which an engine takes no time to compile: beside the
last three parts it has the forward pass, and all else that is done once. In a second process it finds on disk what
another process generated; everywhere else that cache is off.

In a third measurement of the first call the engine compiles, without its cache on disk: tinsmith's own time, the
engine's front end, which turns a kernel's text into the engine's IR, and its compiler, from there to machine code.

A process of its own (`_compile_worker`) compiles, and with `--against` one with the package of another checkout takes
turns with it, on the same kernels. Times are those of the processor, which others on a machine change little, and
without Python's garbage collector: with it, an op of thousands of lines takes a quarter to a third more. The growth of
an op is the power of its size with which the time of all parts goes, from the smallest to the largest: 1 if it is
linear.

Prints a table, and writes it to benchmarks/results/compile-time-cpu.md. `--quick` measures small ops once; its numbers
mean nothing, so it writes only where `--out` says.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import track

from _compile_kernels import CASES, GROWING, name_of
from _compile_worker import ENGINE_PARTS, WITH_ENGINE
from _harness import Figure
from _report import Absent, Row, in_words, markdown, show
from _ways import ENGINES, Missing, library

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PARTS = ("lower", "adjoint", "pipelines", "print")
FIRST = "first call"
SECOND = "second process"
GROWTH = 1.15
"""The power of an op's size with which its time may grow."""


class Worker:
    """A process that compiles with the package of a checkout, on an engine.

    It keeps nothing on disk, unless it has a folder of its own for that. With `compiles` the engine compiles, too.
    """

    def __init__(self, checkout: Path, engine: str, folder: str = "", *, compiles: bool = False) -> None:
        paths = os.pathsep.join(map(str, (checkout / "src", HERE)))
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        # Another checkout may not know the setting, and refuses what it does not know.
        if (checkout / "src" / "tinsmith" / "_disk_cache.py").exists():
            # If passes are verified, as in tests, nothing is read from the cache on disk.
            environment |= {"TINSMITH_CACHE": "1" if folder else "0", "TINSMITH_VERIFY": "0"}
        if folder:
            environment["XDG_CACHE_HOME"] = folder
        command = [sys.executable, str(HERE / "_compile_worker.py"), engine, *(["engine"] if compiles else [])]
        self._process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        while self._read() != "ready":
            pass

    def measure(self, name: str) -> dict[str, float]:
        """Compile an op once, and return the seconds of its parts."""
        assert self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        times: dict[str, float] = json.loads(self._read())
        return times

    def stop(self) -> None:
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a process ended: {' '.join(map(str, self._process.args))}")  # type: ignore[union-attr]
        return line.strip()


@dataclass
class Times:
    """Seconds of an op's parts by round, here and in the other checkout."""

    ours: list[dict[str, float]] = field(default_factory=list)
    theirs: list[dict[str, float]] = field(default_factory=list)

    def part(self, name: str) -> float:
        """Return the median of one part's seconds, or of the number of generated lines."""
        return statistics.median(one[name] for one in self.ours)

    @property
    def total(self) -> float:
        """Seconds from source to text."""
        return statistics.median(map(_add_parts, self.ours))

    def ratio(self, add: Callable[[Mapping[str, float]], float]) -> Figure:
        """Return a time as a multiple of that in the other checkout."""
        return Figure.of(add(one) / add(other) for one, other in zip(self.ours, self.theirs, strict=True))


def _add_parts(one: Mapping[str, float]) -> float:
    return sum(one[part] for part in PARTS)


def _first_call(one: Mapping[str, float]) -> float:
    return one[FIRST]


def _with_engine(one: Mapping[str, float]) -> float:
    return one[WITH_ENGINE]


def measure(engine: str, names: Sequence[str], rounds: int, other: Path | None) -> dict[str, Times]:
    """Measure ops in rounds, in which the checkouts take turns."""
    checkouts = [HERE.parent, *([] if other is None else [other])]
    workers = [Worker(checkout, engine) for checkout in checkouts]
    compilers = [Worker(checkout, engine, compiles=True) for checkout in checkouts]
    with tempfile.TemporaryDirectory() as folder:
        first = Worker(HERE.parent, engine, folder)
        for name in names:
            first.measure(name)
        first.stop()
        second = Worker(HERE.parent, engine, folder)
        for worker in (*workers, *compilers, second):
            worker.measure(names[0])  # run once for late imports
        times = {name: Times() for name in names}
        jobs = [name for _ in range(rounds) for name in names]
        for name in track(jobs, f"Compiling for {engine}", console=Console(stderr=True), transient=True):
            both = times[name].ours, times[name].theirs
            for worker, compiler, seen in zip(workers, compilers, both, strict=False):
                seen.append(worker.measure(name) | compiler.measure(name))
            times[name].ours[-1][SECOND] = second.measure(name)[FIRST]
        for worker in (*workers, *compilers, second):
            worker.stop()
    return times


def find_growth(times: Mapping[str, Times], engine: str) -> Iterator[Row]:
    """Yield rows with the exponent of growth: the power of the op's size with which its time grows from the smallest to
    the largest.
    """
    for what, builds in GROWING.items():
        sizes = [size for size in sorted(builds) if name_of(what, size) in times]
        if len(sizes) < 2:
            continue
        seen = [times[name_of(what, size)] for size in sizes]
        # Measure the size by the generated text, since an op has some lines regardless of its size.
        factor = seen[-1].part("lines") / seen[0].part("lines")
        pairs = zip(seen[-1].ours, seen[0].ours, strict=True)
        powers = [math.log(_add_parts(large) / _add_parts(small), factor) for large, small in pairs]
        ends = ", ".join(f"{size}: {in_words(one.total)}" for size, one in zip(sizes, seen, strict=True))
        yield Row(f"{what}, {engine}", ends, "lines written", Figure.of(powers), "<=", GROWTH, None, "as power")


def compare(times: Mapping[str, Times], engine: str, other: Path) -> Iterator[Row]:
    """Yield rows with the times of all ops and of each op, as multiples of those in the other checkout."""
    rounds = [list(zip(*(getattr(one, side) for one in times.values()), strict=True)) for side in ("ours", "theirs")]
    ways = ((_add_parts, "source to text"), (_first_call, "first call"), (_with_engine, "first call with the engine"))
    for add, what in ways:
        mine, theirs = ([sum(map(add, one)) for one in side] for side in rounds)
        figure = Figure.of(one / another for one, another in zip(mine, theirs, strict=True))
        yield _row(f"all ops, {engine}, {what}", statistics.median(mine), other, figure)
        if CASES.keys() <= times.keys():
            sides = ("ours", "theirs")
            ten = [
                [sum(map(add, one)) for one in zip(*(getattr(times[name], side) for name in CASES), strict=True)]
                for side in sides
            ]
            figure = Figure.of(one / another for one, another in zip(*ten, strict=True))
            yield _row(f"the first ten ops, {engine}, {what}", statistics.median(ten[0]), other, figure)
        for name, one in times.items():
            yield _row(f"{name}, {engine}, {what}", statistics.median(map(add, one.ours)), other, one.ratio(add))


def _row(what: str, seconds: float, other: Path, figure: Figure) -> Row:
    return Row(what, in_words(seconds), other.name, figure, "<=", unit="x its time")


def table(times: Mapping[str, Times], engine: str) -> Iterator[str]:
    """Yield a line of the table for each op, in milliseconds."""
    for name, one in times.items():
        last = (FIRST, SECOND, *ENGINE_PARTS, WITH_ENGINE)
        seconds = [*map(one.part, PARTS), one.total, *map(one.part, last)]
        cells = " | ".join(f"{1e3 * each:,.1f}" for each in seconds)
        yield f"| {name}, {engine} | {one.part('lines'):,.0f} | {cells} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--quick", action="store_true", help="small ops once, to see that it works")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--only", action="append", help="ops whose names contain this")
    asked.add_argument("--engine", choices=ENGINES, action="append", help="one of the engines")
    asked.add_argument("--against", type=Path, help="folder of another checkout")
    asked.add_argument(
        "--out", type=Path, help="folder for the results; benchmarks/results unless something is left out"
    )
    options = asked.parse_args()
    is_whole = not (options.quick or options.only or options.engine)
    out = options.out or (RESULTS if is_whole else None)
    names = [*CASES, *(name_of(what, size) for what, builds in GROWING.items() for size in builds)]
    if options.quick:
        names = ["saxpy", *(name_of(what, size) for what, builds in GROWING.items() for size in sorted(builds)[:2])]
    names = [name for name in names if not options.only or any(one in name for one in options.only)]
    run(names, options.engine or ENGINES, 1 if options.quick else options.rounds, options.against, out)


def run(names: Sequence[str], engines: Sequence[str], rounds: int, other: Path | None, out: Path | None) -> None:
    console = Console(width=None if Console().is_terminal else 200)
    load = os.getloadavg()[0]  # before ours
    rows: list[Row | Absent] = []
    lines: list[str] = []
    for engine in engines:
        lang = library(engine, engine, engine)
        if isinstance(lang, Missing):
            rows.append(Absent(f"on {engine}", lang.reason))
            continue
        times = measure(engine, names, rounds, None if other is None else other.resolve())
        rows += find_growth(times, engine)
        rows += [] if other is None else compare(times, engine, other.resolve())
        lines += table(times, engine)
    title = "What the compiler takes, on cpu"
    show(rows, title, console)
    console.print("\n".join([*HEAD, *lines]), markup=False, highlight=False)
    if out is None:
        console.print("Nothing was written: --out says where to.")
        return
    out.mkdir(parents=True, exist_ok=True)
    how = f"Medians of {rounds} rounds; in brackets the middle half of the rounds. Seconds of the processor. "
    how += f"Load average before: {load:.1f}. What is measured, and how: `benchmarks/compile_time.py`."
    text = "\n".join([markdown(title, how, rows, (), []).rstrip().removesuffix("## What comes out"), *HEAD, *lines, ""])
    page = out / "compile-time-cpu.md"
    page.write_text(text, "utf-8")
    console.print(f"Written: {page}")


HEAD = (
    "## Milliseconds, part by part",
    "",
    "| op | lines written | lower | adjoint | pipelines | print | together | first call | in a second process "
    "| own, with the engine | its front end | its compiler | together |",
    "|---|" + "---:|" * 12,
)


if __name__ == "__main__":
    main()
