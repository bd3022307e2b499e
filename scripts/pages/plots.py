"""Plots of benchmarks, drawn from the tables in benchmarks/results: docs/assets/plots/*.svg.

Each names the digest of the tables it was drawn from, by which a test sees that it is current. Backgrounds are clear
and words of a middle gray, to be read on a light page and on a dark one; a phone is wide enough. The chart of the
README has a light and a dark variant.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from .blocks import ROOT
from .results import number, table_of, text_of

FOLDER = ROOT / "docs" / "assets" / "plots"
_GRAY = "#7b848c"
_OURS = {"taichi": "#e2572b", "quadrants": "#f0a330"}
_OTHERS = ["#4c8fd6", "#6cb26a", "#a678c8", "#3fa7a0", "#9aa3ab"]
_PEER_COLORS = dict(zip(("torch", "torch.compile", "Warp", "Dr.Jit"), _OTHERS, strict=False))
_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "tinsmith", "font.family": "sans-serif", "font.size": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.25,
}  # fmt: skip
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")


def speed(figure: Figure, overhead: str, peers: str) -> None:
    """Draw the chart of the README: the time of one call, and of seven kernels relative to tinsmith's."""
    # Subfigures, so that the long names of one panel do not narrow the other.
    above, below = figure.subfigures(2, height_ratios=[5, 6])
    above.suptitle("One call, forward and backward: microseconds", x=0.01, ha="left", fontsize=10.5)
    below.suptitle("Seven kernels, forward and backward: time relative to tinsmith's", x=0.01, ha="left", fontsize=10.5)
    _one_call(above.subplots(), overhead)
    _kernels(below.subplots(), peers)


def _one_call(axes: Any, overhead: str) -> None:
    """Plot the time of one call, forward and backward, a bar for each way to call."""
    times: dict[str, str] = {}
    for row in table_of(overhead, "")[1:]:
        if row[0] == "64 elements, y.backward(g)" and "Tube" not in row[2]:
            times |= {cell.rpartition(": ")[0]: cell.rpartition(": ")[2] for cell in row[1:3]}
    ways = sorted(times, key=lambda way: number(times[way]) or 0.0)
    lengths = [1e6 * (number(times[way]) or 0.0) for way in ways]
    colors = [_OURS[way.rpartition(" ")[2]] if way.startswith("ts.op") else _OTHERS[-1] for way in ways]
    bars = axes.barh(range(len(ways)), lengths, color=colors, height=0.7)
    axes.bar_label(bars, [f"{length:.0f}" for length in lengths], padding=3, fontsize=9)
    axes.set(yticks=range(len(ways)), yticklabels=[way.replace("ts.op", "tinsmith") for way in ways])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)


def _kernels(axes: Any, peers: str) -> None:
    """Plot the time of each kernel, forward and backward, as a multiple of tinsmith's, a bar for each peer."""
    heads, *rows = table_of(peers, "")
    cells = {row[0]: [cell.split(" / ")[1:] for cell in row[1:]] for row in rows if not row[0].startswith("tinsmith")}
    ways = {way: [number(times[0]) if times else None for times in of] for way, of in cells.items() if any(of)}
    for shift, ((way, ratios), color) in enumerate(zip(ways.items(), _OTHERS, strict=False)):
        places = [place + 0.2 * (shift - (len(ways) - 1) / 2) for place in range(len(ratios))]
        # From 1 up is slower than tinsmith, from 1 down faster.
        heights = [(ratio or 1.0) - 1.0 for ratio in ratios]
        axes.bar(places, heights, bottom=1.0, width=0.19, color=color, label=way)
    axes.axhline(1.0, color=_OURS["taichi"], lw=2, label="tinsmith")
    axes.set(yscale="log", xticks=range(len(heads) - 1), yticks=[0.5, 1, 2, 5, 10, 20])
    axes.set_yticks([], minor=True)
    axes.set_yticklabels(["1/2 x", "1 x", "2 x", "5 x", "10 x", "20 x"])
    axes.set_xticklabels(heads[1:], fontsize=8)
    axes.grid(axis="x", visible=False)
    axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.46, -0.1), ncols=5, handlelength=1)


def sizes(figure: Figure, source: str) -> None:
    """Plot the time of each kernel, forward and backward, as a multiple of tinsmith's, by size."""
    headings = {"small": "Small sizes", "middle": "Middle sizes", "large": ""}
    tables = {size: table_of(source, one) for size, one in headings.items() if f"\n## {one}\n" in source or not one}
    kernels = tables["large"][0][1:]
    panels = list(figure.subplots((len(kernels) + 2) // 2, 2, sharex=True).flat)
    for panel, (place, kernel) in zip(panels, enumerate(kernels, 1), strict=False):
        for way, color in _PEER_COLORS.items():
            cells = {size: row[place].split(" / ") for size, table in tables.items() for row in table if row[0] == way}
            ratios = {size: number(cell[1]) for size, cell in cells.items() if len(cell) == 2}
            panel.plot([*ratios], [*ratios.values()], color=color, label=way, lw=1.2, marker="o", markersize=3)
        panel.axhline(1.0, color=_OURS["taichi"], lw=2, label="tinsmith")
        panel.set(yscale="log")
        low, high = panel.get_ylim()
        ticks = [one for one in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= one <= high]
        panel.set_yticks(ticks, [f"{one:g}" for one in ticks])
        panel.set_yticks([], minor=True)
        panel.set_title(kernel, fontsize=9)
        panel.tick_params(labelsize=7)
    for panel in panels[len(kernels) :]:
        panel.axis("off")
    panels[-1].legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="center")
    figure.supylabel("times tinsmith's, forward and backward", fontsize=9)


def calls(axes: Any, source: str) -> None:
    """Plot the time of a call by the number of elements, one line for each way to call."""
    heads, *rows = table_of(source, "Forward and backward, one input")
    sizes = [number(head) for head in heads[1:]]
    for row, color in zip(rows, _colors(rows), strict=True):
        times = [number(cell) for cell in row[1:]]
        axes.plot(
            sizes, times, marker="o", markersize=3, color=color, label=row[0], lw=2.2 if "ts.op" in row[0] else 1.2
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
    axes.axvline(1.0, color=_GRAY, lw=1)
    # The target differs between kernels; the table shows it.
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
    for shift, (way, color) in enumerate(ways.items()):
        rates = [number(row[heads.index(way)]) or 0.0 for row in chosen]
        axes.bar(
            [place + 0.16 * (shift - 2) for place in range(len(widths))], rates, width=0.15, color=color, label=way
        )
    axes.set(xticks=range(len(widths)), xticklabels=widths, xlabel="width of the networks", yscale="log")
    axes.set_ylabel("thousand samples a second")
    axes.grid(axis="x", visible=False)


class Plot(NamedTuple):
    """A plot: the files of results that it is drawn from, what draws it from their texts, its height and text color."""

    sources: tuple[str, ...]
    draw: Callable[..., None]
    height: float = 3.9
    ink: str = _GRAY

    @property
    def texts(self) -> list[str]:
        """The texts of the files of results."""
        return [text_of(name) for name in self.sources]


def _one_panel(draw: Callable[[Any, str], None]) -> Callable[[Figure, str], None]:
    """Return a function that draws on a figure with a single panel, and adds the legend below it."""

    def draw_figure(figure: Figure, source: str) -> None:
        axes = figure.subplots()
        draw(axes, source)
        axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.44, -0.16), ncols=2)

    return draw_figure


_SPEED = ("overhead-cpu.md", "peers-cpu.md")
PLOTS = {
    "calls.svg": Plot(("overhead-cpu.md",), _one_panel(calls)),
    "gradients.svg": Plot(("adjoint-cpu.md",), _one_panel(gradients)),
    "sizes.svg": Plot(("peers-cpu.md",), sizes, 7.0),
    "networks.svg": Plot(("networks-cpu.md",), _one_panel(networks)),
    "speed-light.svg": Plot(_SPEED, speed, 5.4, "#24292f"),
    "speed-dark.svg": Plot(_SPEED, speed, 5.4, "#dfe5ea"),
}


def write() -> None:
    """Draw all plots, and write them to files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, plot in PLOTS.items():
        (FOLDER / name).write_text(drawn(plot), encoding="utf-8")


def drawn(plot: Plot) -> str:
    """Draw one plot; return it as SVG."""
    with mpl.rc_context(_STYLE | dict.fromkeys(_INKED, plot.ink)):
        figure = Figure(figsize=(5.2, plot.height), layout="constrained")
        plot.draw(figure, *plot.texts)
        file = io.StringIO()
        metadata = {"Date": None, "Description": digest(*plot.texts)}
        figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def digest(*sources: str) -> str:
    """Return the digest by which a plot names the results that it was drawn from."""
    return hashlib.sha256("".join(sources).encode()).hexdigest()[:16]


def stale() -> list[Path]:
    """Return the plots that were not drawn from the current tables."""
    plots = {FOLDER / name: digest(*plot.texts) for name, plot in PLOTS.items()}
    return [
        path for path, wanted in plots.items() if not path.exists() or wanted not in path.read_text(encoding="utf-8")
    ]


def _colors(rows: list[list[str]]) -> list[str]:
    others = iter(_OTHERS)
    return [_OURS[row[0].rpartition(" ")[2]] if row[0].startswith("ts.op") else next(others) for row in rows]


def _ratio(ours: str, other: str) -> float:
    one, two = number(ours), number(other)
    assert one and two
    return one / two
