"""Plots of benchmarks, drawn from the tables in benchmarks/results: docs/assets/plots/*.svg.

Each names the digest of the tables it was drawn from, by which a test sees that it is current. Backgrounds are clear
and words of a middle grey, to be read on a light page and on a dark one; a phone is wide enough.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .blocks import ROOT
from .results import number, table_of, text_of

FOLDER = ROOT / "docs" / "assets" / "plots"
_GREY = "#7b848c"
_OURS = {"taichi": "#e2572b", "quadrants": "#f0a330"}
_OTHERS = ["#4c8fd6", "#6cb26a", "#a678c8", "#3fa7a0", "#9aa3ab"]
_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "tinsmith", "font.family": "sans-serif", "font.size": 10,
    "text.color": _GREY, "axes.labelcolor": _GREY, "axes.edgecolor": _GREY, "xtick.color": _GREY, "ytick.color": _GREY,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": _GREY, "grid.alpha": 0.25,
}  # fmt: skip


def calls(axes: Any, source: str) -> None:
    """Plot the time of a call by the number of elements, one line for each way to call."""
    heads, *rows = table_of(source, "Forward and backward, one input")
    sizes = [number(head) for head in heads[1:]]
    for row, colour in zip(rows, _colours(rows), strict=True):
        times = [number(cell) for cell in row[1:]]
        axes.plot(
            sizes, times, marker="o", markersize=3, color=colour, label=row[0], lw=2.2 if "ts.op" in row[0] else 1.2
        )
    axes.set(xscale="log", yscale="log", xlabel="elements", ylabel="microseconds, forward and backward")


def gradients(axes: Any, source: str) -> None:
    """Plot the time of generated backward passes relative to hand-written ones."""
    heads, *rows = table_of(source, "Times and tapes")
    ours, hand = heads.index("generated"), heads.index("by hand")
    ratios: dict[str, dict[str, float]] = {}
    for row in rows:
        *kernel, engine, part = row[0].split(", ")
        if part == "backward alone":
            ratios.setdefault(", ".join(kernel), {})[engine] = _ratio(row[ours], row[hand])
    for shift, engine in enumerate(_OURS):
        places = [place + 0.38 * (shift - 0.5) for place in range(len(ratios))]
        widths = [of[engine] for of in ratios.values()]
        axes.barh(places, widths, height=0.34, color=_OURS[engine], label=f"on {engine}")
    axes.axvline(1.0, color=_GREY, lw=1)
    # What is to hold differs from kernel to kernel: it stands in the table.
    axes.set(yticks=range(len(ratios)), yticklabels=list(ratios), xlabel="times the gradient by hand")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def networks(axes: Any, source: str) -> None:
    """Plot the training speed of 1,024 networks by their width."""
    heads, *rows = table_of(source, "Training steps, thousands of samples a second")
    chosen = [row for row in rows if row[heads.index("networks")] == "1,024" and row[heads.index("hidden")] == "2"]
    widths = [row[heads.index("width")] for row in chosen]
    ways = {"tinsmith on taichi": _OURS["taichi"], "tinsmith on quadrants": _OURS["quadrants"]}
    ways |= dict(zip(["torch eager", "vmap", "torch.compile"], _OTHERS, strict=False))
    for shift, (way, colour) in enumerate(ways.items()):
        rates = [number(row[heads.index(way)]) or 0.0 for row in chosen]
        axes.bar(
            [place + 0.16 * (shift - 2) for place in range(len(widths))], rates, width=0.15, color=colour, label=way
        )
    axes.set(xticks=range(len(widths)), xticklabels=widths, xlabel="width of the networks", yscale="log")
    axes.set_ylabel("thousand samples a second")
    axes.grid(axis="x", visible=False)


PLOTS: dict[str, tuple[str, Callable[[Any, str], None]]] = {
    "calls.svg": ("overhead-cpu.md", calls),
    "gradients.svg": ("adjoint-cpu.md", gradients),
    "networks.svg": ("networks-cpu.md", networks),
}


def write() -> None:
    """Draw all plots, and write them to files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (source, draw) in PLOTS.items():
        (FOLDER / name).write_text(drawn(text_of(source), draw), encoding="utf-8")


def drawn(source: str, draw: Callable[[Any, str], None]) -> str:
    """Draw one plot; return it as SVG."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.2, 3.9), layout="constrained")
        axes = figure.subplots()
        draw(axes, source)
        axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.44, -0.16), ncols=2)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Description": digest(source)})
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def digest(source: str) -> str:
    """Return the digest by which a plot names the table that it was drawn from."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def stale() -> list[Path]:
    """Return the plots that were not drawn from the current tables."""
    plots = {FOLDER / name: digest(text_of(source)) for name, (source, _) in PLOTS.items()}
    return [
        path for path, wanted in plots.items() if not path.exists() or wanted not in path.read_text(encoding="utf-8")
    ]


def _colours(rows: list[list[str]]) -> list[str]:
    others = iter(_OTHERS)
    return [_OURS[row[0].rpartition(" ")[2]] if row[0].startswith("ts.op") else next(others) for row in rows]


def _ratio(ours: str, other: str) -> float:
    one, two = number(ours), number(other)
    assert one and two
    return one / two
