"""How the time of a call grows with what there is more of: elements, batch, steps, Gaussians, arguments, calls, ops.

    python benchmarks/growth.py [--quick] [--only steps] [--engine quadrants] [--seconds 60] [--bytes 8e9] [--out DIR]

Each dimension goes from 10 up, in steps of about three, until the next point would take more than `--seconds` in one
call or more than `--bytes` of memory. Beside ours the best peers do the same: torch, and Numba where it is installed
and a forward pass is what is measured.

A slope is that of a line through the logarithms of size and time, over the last hundredfold of the sizes that both have
reached: 1 if the time is proportional. To hold: our slope is at most 0.15 above that of the peer that is fastest at the
largest size. Times are those of the processor, on one thread, so that other work on a machine changes them little.

Prints a table, and writes it and a chart for each dimension to benchmarks/results/growth-cpu.md. `--quick` measures
small sizes alone, and writes only where `--out` says.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import _peer_cases as peer_cases
import _peer_kernels as peer_kernels
import tinsmith as ts
from _harness import Call, Effort, Figure, Timing, timed
from _report import Row, in_words, machine, markdown, show
from _ways import Total, Triple, ours, ours_total
from scan import looped, springs

RESULTS = Path(__file__).resolve().parent / "results"
OURS = "tinsmith"
SPREAD = 100
"""The factor between the least and the largest size that a slope is fitted to."""
HELD = 0.15
"""How much above the peer's our slope may be."""
FEW = 64
"""Elements of arrays whose size is not what grows."""


@dataclass(frozen=True)
class Dimension:
    """Something that a call may have more of.

    Attributes:
        name: what grows.
        about: what is measured.
        build: makes the calls of all ways, by name, for an engine's module and a size.
        bytes_each: of memory, for each unit.
        most: the largest size.
    """

    name: str
    about: str
    build: Callable[[Any, int], dict[str, Call]]
    bytes_each: float
    most: int = 10**10


def _differentiate(run: Callable[[Tensor], Tensor], x: Tensor) -> Call:
    """Return a call of a function and its gradient."""

    def call() -> None:
        x.grad = None
        run(x).sum().backward()

    return call


def elements(lang: Any, size: int) -> dict[str, Call]:
    x, op = torch.rand(size), ours(lang)
    calls: dict[str, Call] = {OURS: lambda: op(x), "torch": lambda: x * 3.0}
    with contextlib.suppress(ImportError):
        calls["Numba"] = _triple_in_numba(x)
    return calls


def _triple_in_numba(x: Tensor) -> Call:
    numba: Any = importlib.import_module("numba")

    @numba.njit(fastmath=True)
    def triple(x: Any, y: Any) -> None:
        for i in range(len(x)):
            y[i] = numba.float32(3.0) * x[i]

    def call() -> Tensor:
        y = torch.empty_like(x)
        triple(x.numpy(), y.numpy())
        return y

    return call


def elements_with_gradient(lang: Any, size: int) -> dict[str, Call]:
    x = torch.rand(size, requires_grad=True)
    return {OURS: _differentiate(ours(lang), x), "torch": _differentiate(lambda x: x * 3.0, x)}


def batch(lang: Any, size: int) -> dict[str, Call]:
    x = torch.rand(size, 16, requires_grad=True)
    op = ours(lang)
    ways = {OURS: torch.func.vmap(op), "torch": torch.func.vmap(lambda x: x * 3.0)}
    return {name: _differentiate(way, x) for name, way in ways.items()}


def steps(lang: Any, size: int) -> dict[str, Call]:
    spring = springs(lang)
    number = torch.tensor(0.2)
    x, v = torch.randn(FEW, requires_grad=True), torch.zeros(FEW)

    def step(x: Tensor, v: Tensor, stiffness: Tensor) -> tuple[Tensor, Tensor]:
        left, right = torch.cat([x[:1], x[:-1]]), torch.cat([x[1:], x[-1:]])
        w = v + 0.01 * stiffness * (left - 2.0 * x + right)
        return x + 0.01 * w, w

    return {
        OURS: _differentiate(lambda x: ts.scan(spring, (x, v), length=size, parameters=number)[0][0], x),
        "torch": _differentiate(lambda x: looped(step, (x, v), number, size), x),
    }


def gaussians(lang: Any, size: int) -> dict[str, Call]:
    sizes = {"reach": 4, "h": 64, "w": 64}
    place, sharp, color = torch.rand(size, 2) * 60.0, 0.05 + 0.1 * torch.rand(size), torch.rand(size, 3)
    place.requires_grad_()
    op = peer_kernels.splat(lang)
    return {
        OURS: _differentiate(lambda place: op(place, sharp, color, **sizes), place),
        "torch": _differentiate(lambda place: peer_cases.splat(place, sharp, color, **sizes), place),
    }


def arguments(lang: Any, size: int) -> dict[str, Call]:
    inputs = [torch.rand(FEW) for _ in range(size)]
    inputs[0].requires_grad_()
    op, peer = ours_total(lang, size), Total.apply
    return {
        OURS: _differentiate(lambda x: op(x, *inputs[1:]), inputs[0]),
        "torch": _differentiate(lambda x: peer(x, *inputs[1:]), inputs[0]),
    }


def calls_kept_alive(lang: Any, size: int) -> dict[str, Call]:
    x = torch.rand(FEW, requires_grad=True)

    def run(way: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.stack([way(x).sum() for _ in range(size)])

    return {OURS: _differentiate(run(ours(lang)), x), "torch": _differentiate(run(Triple.apply), x)}


def ops_in_a_process(lang: Any, size: int) -> dict[str, Call]:
    x = torch.rand(FEW, requires_grad=True)

    def make_ours() -> list[Any]:
        return [ours(lang) for _ in range(size)]

    def make_peers() -> list[Any]:
        return [type("Another", (Triple,), {}).apply for _ in range(size)]

    def run(make: Callable[[], list[Any]]) -> Call:
        def call() -> None:
            ways = make()
            for way in ways:
                _differentiate(way, x)()

        return call

    return {OURS: run(make_ours), "torch": run(make_peers)}


DIMENSIONS = (
    Dimension("elements", "y = 3 x, forward", elements, 16),
    Dimension("elements, with gradient", "y = 3 x, forward and backward", elements_with_gradient, 24),
    Dimension("batch", "`vmap` of y = 3 x over vectors of 16, forward and backward", batch, 384),
    Dimension("steps", f"`ts.scan` of {FEW} masses and springs; a loop in torch; forward and backward", steps, 8e3),
    Dimension("Gaussians", "round Gaussians added to 64 x 64 pixels, forward and backward", gaussians, 8e3),
    Dimension("arguments", f"the sum of arrays of {FEW}, forward and backward", arguments, 1e3, 300),
    Dimension("calls kept alive", "calls whose results are differentiated together", calls_kept_alive, 1e4),
    Dimension("ops in a process", "making ops, and calling each forward and backward", ops_in_a_process, 2e5),
)
"""The last one leaves the most behind in the process."""


@dataclass
class Curve:
    """The times of all ways at all sizes of a dimension."""

    dimension: Dimension
    engine: str
    timings: dict[str, dict[int, Timing]] = field(default_factory=dict)

    @property
    def best_peer(self) -> str:
        """The peer that is fastest at the largest size that it has reached."""
        peers = {name: by_size for name, by_size in self.timings.items() if name != OURS}
        return min(peers, key=lambda name: peers[name][max(peers[name])].median)

    def find_slope(self, name: str) -> Figure:
        """Return the slope of a way's time, by round and of the medians, over the last hundredfold of the sizes."""
        by_size = self.timings[name]
        common = [size for size in by_size if all(size in other for other in self.timings.values())]
        sizes = [size for size in common if SPREAD * size >= max(common)]
        rounds = set.intersection(*({*by_size[size].rounds} for size in sizes))
        slopes = [_fit({size: by_size[size].rounds[number] for size in sizes}) for number in rounds]
        return Figure.of(slopes, _fit({size: by_size[size].median for size in sizes}))

    def row(self) -> Row:
        """Return the row of the table that compares our slope with the best peer's."""
        mine, theirs = self.find_slope(OURS), self.find_slope(self.best_peer)
        more = Figure(mine.middle - theirs.middle, mine.low - theirs.high, mine.high - theirs.low)
        last = max(self.timings[OURS])
        shown = f"slope {mine.middle:.2f}; {last:,}: {in_words(self.timings[OURS][last].median)}"
        peer = max(self.timings[self.best_peer])
        against = f"{self.best_peer}: slope {theirs.middle:.2f}; {peer:,}: "
        against += in_words(self.timings[self.best_peer][peer].median)
        return Row(f"{self.dimension.name}, {self.engine}", shown, against, more, "<=", HELD, None, "more as power")

    def lines(self) -> Iterator[str]:
        """Yield the table of times, in microseconds a call."""
        sizes = sorted({size for by_size in self.timings.values() for size in by_size})
        yield f"### {self.dimension.name.capitalize()}, {self.engine}"
        yield f"\n{self.dimension.about.capitalize()}. Microseconds.\n"
        yield f"| {self.dimension.name} | {' | '.join(f'{size:,}' for size in sizes)} |"
        yield "|---|" + "---:|" * len(sizes)
        for name, by_size in self.timings.items():
            cells = (f"{1e6 * by_size[size].median:,.0f}" if size in by_size else "" for size in sizes)
            yield f"| {name} | {' | '.join(cells)} |"
        yield ""


def _fit(times: Mapping[int, float]) -> float:
    """Return the slope of a line through the logarithms of sizes and times."""
    if len(times) < 2:
        return 0.0
    # A clock of the processor may show no time at all.
    pairs = [(math.log(size), math.log(max(seconds, 1e-9))) for size, seconds in times.items()]
    return statistics.linear_regression(*zip(*pairs, strict=True))[0]


def list_sizes() -> Iterator[int]:
    """Yield 10, 30, 100, 300 and so on."""
    size = 10
    while True:
        yield size
        yield 3 * size
        size *= 10


def measure(dimension: Dimension, engine: str, lang: Any, effort: Effort, seconds: float, room: float) -> Curve:
    """Measure a dimension up to the limits of time and memory. A way that becomes too slow ends alone."""
    curve = Curve(dimension, engine)
    gone: set[str] = set()
    for size in list_sizes():
        if size > dimension.most or size * dimension.bytes_each > room:
            break
        calls = {name: call for name, call in dimension.build(lang, size).items() if name not in gone}
        for name, timing in timed(calls, effort).items():
            curve.timings.setdefault(name, {})[size] = timing
            if 3.5 * timing.median > seconds:
                gone.add(name)
        calls.clear()
        gc.collect()
        if gone >= curve.timings.keys():
            break
    return curve


def draw_charts(curves: list[Curve], file: Path) -> None:
    """Draw a panel for each dimension, with a line for each way on each engine."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(curve.dimension.name for curve in curves))
    rows = -(-len(names) // 4)
    figure, panels = plt.subplots(rows, 4, figsize=(15, 4 * rows), layout="constrained", squeeze=False)
    for panel in panels.flat[len(names) :]:
        panel.axis("off")
    for panel, name in zip(panels.flat, names, strict=False):
        shown: set[str] = set()
        for curve in curves:
            if curve.dimension.name != name:
                continue
            for way, by_size in curve.timings.items():
                label = f"{way}, {curve.engine}" if way == OURS else way
                if label in shown:
                    continue
                shown.add(label)
                style = "-" if curve.engine == "quadrants" or way != OURS else "--"
                panel.plot(
                    [*by_size], [one.median for one in by_size.values()], style, marker="o", markersize=3, label=label
                )
        panel.set(xscale="log", yscale="log", xlabel=name, ylabel="seconds")
        panel.grid(visible=True, color="#dddddd", linewidth=0.6)
        panel.legend(fontsize=8, frameon=False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--quick", action="store_true", help="small sizes once, to see that it works")
    asked.add_argument("--only", action="append", help="dimensions whose names contain this")
    asked.add_argument("--engine", choices=("taichi", "quadrants"), action="append")
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--seconds", type=float, default=60.0, help="the longest call")
    asked.add_argument("--bytes", type=float, default=8e9, help="the most memory of a point")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless it is incomplete")
    options = asked.parse_args()
    console = Console(width=None if Console().is_terminal else 200)
    load = os.getloadavg()[0]  # before ours
    torch.set_num_threads(1)
    seconds, room = (0.02, 1e6) if options.quick else (options.seconds, options.bytes)
    effort = Effort(options.rounds, patience=2.0 if options.quick else 6.0, clock=time.process_time)
    curves: list[Curve] = []
    for dimension in DIMENSIONS:
        if options.only and not any(one in dimension.name for one in options.only):
            continue
        for engine in options.engine or ("taichi", "quadrants"):
            with contextlib.redirect_stdout(io.StringIO()):
                ts.init("cpu", engine=engine)
            curves.append(measure(dimension, engine, importlib.import_module(engine), effort, seconds, room))
            console.print(curves[-1].row().cells(), markup=False, highlight=False)
    rows = [curve.row() for curve in curves]
    title = "How cost grows, on cpu"
    show(rows, title, console)
    out = options.out or (None if options.quick or options.only or options.engine else RESULTS)
    if out is None:
        console.print("Nothing was written: --out says where to.")
        return
    out.mkdir(parents=True, exist_ok=True)
    draw_charts(curves, out / "growth-cpu.png")
    how = f"Medians of {options.rounds} rounds, on one thread; seconds of the processor. "
    how += f"Points end at {in_words(seconds)} a call or {room / 1e9:g} GB. Load average before: {load:.1f}"
    how += ": the machine was shared. " if load > 1 else ". "
    how += "What is measured, and how: `benchmarks/growth.py`."
    text = markdown(title, how, rows, (), []).rstrip().removesuffix("## What comes out").rstrip()
    lines = [line for curve in curves for line in curve.lines()]
    page = out / "growth-cpu.md"
    page.write_text("\n".join([text, "", "![Seconds by size](growth-cpu.png)", "", *lines]), "utf-8")
    console.print(f"Written: {page}, on {machine()}")


if __name__ == "__main__":
    main()
