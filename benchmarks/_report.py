"""Report: measurements as one table with their targets, as Markdown and as a plot."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table

from _harness import Figure, Timing

_COLORS = {"ts.op": "#d1495b", "by hand": "#4f6d8f", "Warp": "#6a994e", "torch": "#222222", "Stannum": "#c9a227"}


@dataclass(frozen=True)
class Row:
    """A figure with its target.

    Attributes:
        unit: "x" for a ratio, or a unit of time; `scale` converts the figure to it.
        bar: the target; None for a row without one.
    """

    what: str
    ours: str
    against: str
    figure: Figure
    sense: Literal[">=", "<="] = ">="
    bar: float | None = None
    aim: float | None = None
    unit: str = "x"
    scale: float = 1.0

    def reaches(self, bound: float) -> bool:
        measured = self.figure.middle * self.scale
        return measured >= bound if self.sense == ">=" else measured <= bound

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        if not self.reaches(self.bar):
            return "MISSED"
        return "held, and the aim" if self.aim is not None and self.reaches(self.aim) else "held"

    def cells(self) -> tuple[str, ...]:
        middle, low, high = (
            _number(value * self.scale) for value in (self.figure.middle, self.figure.low, self.figure.high)
        )
        hold = "" if self.bar is None else f"{self.sense} {self.bar:g} {self.unit}"
        hold += "" if self.aim is None else f", aim {self.aim:g}"
        return self.what, self.ours, self.against, f"{middle} {self.unit} ({low} to {high})", hold, self.verdict


@dataclass(frozen=True)
class Absent:
    """A row of the table for something that could not be measured, with the reason."""

    what: str
    reason: str

    def cells(self) -> tuple[str, ...]:
        return self.what, "", "", self.reason, "", "not measured"


@dataclass
class Grid:
    """Timings by way and by a number (elements, arguments), for a table and a line in the plot."""

    title: str
    number: str
    timings: dict[str, dict[int, Timing]] = field(default_factory=dict)

    def add(self, number: int, timings: Mapping[str, Timing]) -> None:
        for name, timing in timings.items():
            self.timings.setdefault(name, {})[number] = timing

    def lines(self) -> list[str]:
        numbers = sorted({number for by_number in self.timings.values() for number in by_number})
        lines = [f"| {self.number} | {' | '.join(f'{number:,}' for number in numbers)} |"]
        lines.append("|---|" + "---:|" * len(numbers))
        for name, by_number in self.timings.items():
            cells = (_microseconds(by_number[n].median) if n in by_number else "" for n in numbers)
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return lines


HEADINGS = ("what", "ours", "against", "ratio or difference", "to hold", "")


def show(rows: Sequence[Row | Absent], title: str, console: Console) -> None:
    """Print the table."""
    table = Table(*HEADINGS, title=title, title_justify="left", pad_edge=False)
    for row in rows:
        *cells, verdict = row.cells()
        style = {"MISSED": "bold red", "not measured": "yellow"}.get(verdict, "green")
        table.add_row(*cells, f"[{style}]{verdict}[/]")
    console.print(table)


def markdown(title: str, how: str, rows: Sequence[Row | Absent], truth: Sequence[str], grids: Sequence[Grid]) -> str:
    """Return the whole report as one Markdown page."""
    lines = [f"# {title}", "", how, "", f"{machine()}.", ""]
    lines += [f"| {' | '.join(HEADINGS)} |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row.cells())} |" for row in rows]
    lines += ["", "## What comes out", "", *truth]
    for grid in grids:
        lines += ["", f"## {grid.title}", "", "Microseconds a call, medians.", "", *grid.lines()]
    return "\n".join(lines) + "\n"


def plot(grids: Sequence[Grid], device: str, file: Path) -> None:
    """Plot each grid as a panel with a line for each way: by size above, by arguments below."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rows = [[grid for grid in grids if (grid.number == "elements") is by_size] for by_size in (True, False)]
    figure, panels = plt.subplots(2, max(map(len, rows)), figsize=(15, 8.5), layout="constrained", squeeze=False)
    for axes, row in zip(panels, rows, strict=True):
        for panel, grid in zip(axes, row, strict=False):
            _draw(panel, grid)
        for panel in axes[len(row) :]:
            panel.axis("off")
    handles, labels = panels[0][0].get_legend_handles_labels()
    panels[0][-1].legend(handles, labels, loc="center left", frameon=False)
    figure.suptitle(f"What a call costs, on {device}", x=0.01, ha="left")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _draw(panel: Any, grid: Grid) -> None:
    for name, by_number in grid.timings.items():
        numbers = sorted(by_number)
        panel.plot(numbers, [by_number[n].median * 1e6 for n in numbers], label=name, **_look(name))
    panel.set(xlabel=grid.number, ylabel="microseconds a call", title=grid.title)
    if grid.number == "elements":
        panel.set(xscale="log", yscale="log")
    else:
        panel.set_ylim(bottom=0)
    panel.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _look(name: str) -> dict[str, object]:
    color = next((color for start, color in _COLORS.items() if name.startswith(start)), "#888888")
    is_ours = name.startswith("ts.op")
    style = "--" if name.endswith("quadrants") else "-"
    return {"color": color, "linestyle": style, "linewidth": 2.4 if is_ours else 1.4, "marker": "o", "markersize": 3}


def machine() -> str:
    """Describe the machine and the versions that the numbers belong to."""
    names = ("torch", "taichi", "quadrants", "stannum", "warp-lang", "drjit", "numba")
    versions = [f"{name} {metadata.version(name)}" for name in names if _is_installed(name)]
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    cores = f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    return f"{_processor()}{gpu}, {cores}; Python {platform.python_version()}, {', '.join(versions)}"


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def in_words(seconds: float) -> str:
    """Format a time: 12.3 us, 4.56 ms, 1.2 s."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{_number(seconds * factor)} {unit}"
    return f"{_number(seconds)} s"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f}" if seconds >= 1e-4 else f"{seconds * 1e6:.1f}"


def _number(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
