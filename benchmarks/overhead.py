"""What a call costs: this library beside the hand-written Function, torch alone, Warp and Stannum.

    python benchmarks/overhead.py [--device cuda] [--quick] [--rounds 150] [--out FOLDER]

All in one process, in interleaved rounds (`_harness`). Everybody gets the same kernel, y = 3 x, and launches
it as their own documentation says; engines and torch use their default number of threads. The gradient is
asked for in two ways that users have: `y.backward(g)` with a gradient at hand, and `y.sum().backward()`.
Torch's OpenMP threads are told to wait passively: else they spin on for a while after their work, and where
cores are few they take them from whoever is timed next (seen: 7 ms a call, for everybody, torch included).

Prints one table beside the numbers to hold, with the parts of a call (`_parts`), and writes it with all timings
and a plot to benchmarks/results/overhead-<device>.md. `--quick` tries everything on a few small calls; its numbers
mean nothing, so it writes only where `--out` says. Libraries to compare with come with `pip install ".[peers]"`;
one that is missing is named in the table.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from pathlib import Path
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console
from rich.progress import track

import tinsmith as ts
from _forms import by_form, of_updates
from _harness import Effort
from _parts import of_parts
from _report import Absent, markdown, plot, show
from _sections import Bench, by_arguments, by_size, of_import, of_many_elements, of_tube
from _truth import truth
from _ways import ENGINES, Missing, library

RESULTS = Path(__file__).parent / "results"
SIZES = (1, 64, 1024, 16_384, 262_144, 10_000_000)
COUNTS = (1, 2, 4, 8, 12)
QUESTIONS = (
    by_size,
    of_parts,
    by_form,
    of_updates,
    by_arguments,
    of_import,
    of_tube,
    of_many_elements,
)  # the last section changes how freed memory is kept


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked.add_argument("--quick", action="store_true", help="everything once, on small calls, to see that it works")
    asked.add_argument("--rounds", type=int, default=150)
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --quick")
    options = asked.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        asked.exit(2, "overhead: torch sees no CUDA device, so nothing was measured; leave out --device cuda\n")
    out = options.out or (None if options.quick else RESULTS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    run(options.device, options.rounds, out, is_quick=options.quick)


def run(device: str, rounds: int, out: Path | None, *, is_quick: bool) -> None:
    console = Console(width=None if Console().is_terminal else 200)
    langs = {name: library(name, name, name) for name in ENGINES}
    rows: list[Any] = [Absent(f"ts.op on {lang.name}", lang.reason) for lang in langs.values() if is_missing(lang)]
    bench = prepared(device, rounds, {name: lang for name, lang in langs.items() if not is_missing(lang)}, is_quick)
    said = truth(bench)
    for question in track(QUESTIONS, "Measuring", console=Console(stderr=True), transient=True):
        rows += question(bench)
    title = f"What a call costs, on {device}"
    show(rows, title, console)
    if out is None:
        console.print("--quick: the numbers mean nothing, and none were written.")
        return
    how = f"Medians of up to {rounds} interleaved rounds; in brackets the middle half of the rounds. "
    how += f"OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}. What is measured, and how: `benchmarks/overhead.py`."
    grids = list(bench.grids.values())
    page, picture = out / f"overhead-{device}.md", out / f"overhead-{device}.png"
    page.write_text(markdown(title, how, rows, said, grids) + f"\n![the same as lines]({picture.name})\n", "utf-8")
    plot(grids, device, picture)
    console.print(f"Written: {page}, {picture}")


def prepared(device: str, rounds: int, langs: dict[str, Any], is_quick: bool) -> Bench:
    """Start the engines, and import the libraries to compare with; return the benchmark's setup."""
    with contextlib.redirect_stdout(io.StringIO()):  # Quadrants prints that it starts at any log level
        for name in langs:
            ts.init(device, engine=name)
    warp, stannum = (library(name, label, "peers") for name, label in (("warp", "Warp"), ("stannum", "Stannum")))
    if is_quick:
        return Bench(device, Effort(3, 1e-4), (1, 64), (1, 3), 0, 1, True, langs, warp, stannum)
    return Bench(device, Effort(rounds), SIZES, COUNTS, 16, 8, False, langs, warp, stannum)


def is_missing(module: Any) -> bool:
    return isinstance(module, Missing)


if __name__ == "__main__":
    main()
