"""How long the compiler takes for kernels of 100 to 30,000 statements: linear in their number, whatever their shape.

    python benchmarks/preparation.py [--quick] [--only loops] [--most 20] [--engine quadrants] [--out FOLDER]

Kernels of fifteen shapes (`_compile_shapes`), from source to the text of the gradient by all inputs, as
`compile_time.py` measures it: seconds of the processor, without an engine's own compiler. A shape ends at the size that
would take longer than `--most` seconds, but for the first, an unrolled loop, which goes to the end. For that shape the
engine's own time is measured too, up to four times `--most`: what its front end and its compiler take in a first call,
forward and backward. The growth is the power of the size with which the time goes, from 1,000 statements (or the
smallest size) to the largest: 1 if it is linear.

Prints a table, and writes it and a chart to benchmarks/results/preparation-cpu.md. `--quick` measures small kernels
alone, and writes only where `--out` says.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from _compile_shapes import SHAPES
from compile_time import ENGINE_PARTS, HERE, PARTS, RESULTS, Worker

SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000)
UNROLLED = "chain"
"""The shape that is measured at all sizes, and of which the engine's time is measured."""
STEADY = 1_000
"""Statements from which what an op takes, however small it is, no longer matters."""

Seconds = Mapping[int, float]
"""Seconds by the number of statements."""


def measure(worker: Worker, shape: str, most: float, largest: int, parts: Sequence[str] = PARTS) -> Seconds:
    """Return the seconds of a shape, for the sizes that take no longer than `most` seconds."""
    seconds: dict[int, float] = {}
    for size in SIZES:
        last = max(seconds, default=0)
        if size > largest or (last and seconds[last] * size / last > most):
            break
        times = worker.measure(f"parts of {shape} {size}")
        seconds[size] = sum(times[part] for part in parts)
    return seconds


def find_growth(seconds: Seconds) -> float:
    """Return the power of the size with which the time goes."""
    last = max(seconds)
    first = STEADY if STEADY in seconds and last > STEADY else min(seconds)
    return math.log(seconds[last] / seconds[first], last / first) if last > first else math.nan


def write_table(measured: Mapping[str, Seconds]) -> list[str]:
    """Return the table in Markdown, in seconds."""
    sizes = [size for size in SIZES if any(size in one for one in measured.values())]
    lines = [f"| shape | {' | '.join(f'{size:,}' for size in sizes)} | growth |", "|---|" + "---:|" * (len(sizes) + 1)]
    for shape, seconds in measured.items():
        cells = (f"{seconds[size]:.2f}" if size in seconds else "" for size in sizes)
        lines.append(f"| {shape} | {' | '.join(cells)} | {find_growth(seconds):.2f} |")
    return lines


def draw_chart(measured: Mapping[str, Seconds], file: Path) -> None:
    """Draw the seconds of all shapes by their size, with a line of linear growth."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
    # As many colors as there are shapes: the ten of the default come back.
    axes.set_prop_cycle(color=mpl.colormaps["tab20"].colors)
    for shape, seconds in measured.items():
        style = "--" if shape.endswith("engine") else "-"
        label = f"{shape}: {find_growth(seconds):.2f}"
        axes.plot([*seconds], [*seconds.values()], style, marker="o", markersize=3, linewidth=1.2, label=label)
    least = min(one[min(one)] for one in measured.values()) / 2
    axes.plot(SIZES, [least * size / SIZES[0] for size in SIZES], color="black", linestyle=":", label="linear: 1")
    axes.set(xscale="log", yscale="log", xlabel="statements", ylabel="seconds from source to the text of the gradient")
    axes.legend(fontsize=8, ncols=2)
    figure.savefig(file, dpi=120)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--quick", action="store_true", help="small kernels alone, to see that it works")
    asked.add_argument("--only", action="append", help="shapes whose names contain this")
    asked.add_argument("--most", type=float, default=20.0, help="seconds of one kernel")
    asked.add_argument("--engine", default="quadrants")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless it is incomplete")
    options = asked.parse_args()
    console = Console(width=160)
    worker = Worker(HERE.parent, options.engine)
    worker.measure("parts of chain 100")  # run once for late imports
    measured: dict[str, Seconds] = {}
    for shape in SHAPES:
        if not options.only or any(one in shape for one in options.only):
            largest = 300 if options.quick else SIZES[-1]
            measured[shape] = measure(worker, shape, math.inf if shape == UNROLLED else options.most, largest)
            if shape == UNROLLED:
                engine = Worker(HERE.parent, options.engine, compiles=True)
                measured[f"{shape}, engine"] = measure(engine, shape, 4 * options.most, largest, ENGINE_PARTS[1:])
                engine.stop()
    worker.stop()
    lines = write_table(measured)
    console.print("\n".join(lines), markup=False, highlight=False)
    out = options.out or (None if options.quick or options.only else RESULTS)
    if out is None:
        console.print("Nothing was written: --out says where to.")
        return
    out.mkdir(parents=True, exist_ok=True)
    draw_chart(measured, out / "preparation-cpu.png")
    head = "Seconds of the processor by the number of statements, without the engine's compiler, for "
    head += f"{options.engine}; in the row `engine`, of the engine alone, forward and backward. Growth is the power "
    head += "of the size with which the time goes: 1 if it is linear. What is measured: `benchmarks/preparation.py`."
    title, picture = "# Preparation, by the size of a kernel", "![Seconds by statements](preparation-cpu.png)"
    page = out / "preparation-cpu.md"
    page.write_text("\n".join([title, "", head, "", picture, "", *lines, ""]), "utf-8")
    console.print(f"Written: {page}")


if __name__ == "__main__":
    main()
