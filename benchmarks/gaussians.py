"""Splatting of 3-D Gaussians against the same in plain torch, a tile at a time.

    python benchmarks/gaussians.py [--gaussians 10000] [--side 128] [--rounds 15] [--out benchmarks/results]

Everything from means, rotations, scales, opacities and colors to an image with alpha, and back to their gradients, in
float32. All ways take turns in one process, so that a busy machine meets them alike; one that computes something else
ends the run. Memory is that of a step with many Gaussians, each way in a process of its own.

Prints the table and writes it to gaussians-cpu.md. Ends with 1 where a bar is missed; with --quick, which measures
nothing of worth, it does not.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

import _gaussian_ways as ways
from _harness import Effort, Timing, ratio, timed
from _report import HEADINGS, Row, machine, show

RESULTS = Path(__file__).parent / "results"
TORCH = "plain torch, by tiles"
BAR, AIM = 3.0, 8.0


def chosen() -> dict[str, ways.Way]:
    return {f"tinsmith on {engine}": ways.ours(engine) for engine in ways.ENGINES} | {TORCH: ways.by_tiles}


def require_agreement(given: Sequence[Tensor], side: int) -> None:
    """Whoever computes something else may be as fast as they like."""
    found = {name: [way(*given, side=side), *ways.step(way, given, side)()] for name, way in chosen().items()}
    for name, tensors in found.items():
        for one, other in zip(tensors, found[TORCH], strict=True):
            difference = (one - other).norm() / other.norm()
            if difference > 5e-3:
                raise SystemExit(f"Gaussians: {name} computes something else: differs by {difference:.1e}")


def forward(way: ways.Way, given: Sequence[Tensor], side: int) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            way(*given, side=side)

    return run


def measured(given: Sequence[Tensor], side: int, effort: Effort) -> dict[str, dict[str, Timing]]:
    """By what is done, and by who does it."""
    calls = {
        "forward": {who: forward(way, given, side) for who, way in chosen().items()},
        "forward and backward": {who: ways.step(way, given, side) for who, way in chosen().items()},
    }
    return {what: timed(by_who, effort) for what, by_who in calls.items()}


def rows(timings: dict[str, dict[str, Timing]], what: str) -> list[Row]:
    """Each of our engines against torch."""
    found = []
    for asked, by_who in timings.items():
        bar, aim = (BAR, AIM) if "backward" in asked else (None, None)
        found += [
            Row(f"{what}, {asked}", who, TORCH, ratio(by_who[TORCH], timing), bar=bar, aim=aim)
            for who, timing in by_who.items()
            if who != TORCH
        ]
    return found


def memory(n: int, side: int) -> list[str]:
    lines = [f"| {n:,} Gaussians, {side} x {side} | inputs, MB | inputs and step, MB |", "|---|---:|---:|"]
    for engine in ways.ENGINES:
        size, total = ways.in_a_process(engine, n, side)
        lines.append(f"| tinsmith on {engine} | {size / 1e6:.1f} | {total / 1e6:.1f} |")
    return lines


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--gaussians", type=int, default=10_000)
    asked.add_argument("--side", type=int, default=128)
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--quick", action="store_true", help="little of everything: does it run?")
    asked.add_argument("--out", type=Path, default=RESULTS)
    options = asked.parse_args()
    many, large = (300, 64) if options.quick else (100_000, 512)
    if options.quick:
        options.gaussians, options.side, options.rounds = 100, 32, 2
    load = os.getloadavg()[0]  # before ours
    torch.manual_seed(0)
    given = ways.scene(options.gaussians, options.side)
    require_agreement(given, options.side)
    timings = measured(given, options.side, Effort(options.rounds, moment=0.05, patience=60))
    found = rows(timings, f"{options.gaussians:,} Gaussians, {options.side} x {options.side}")
    show(found, "Gaussians", Console())
    options.out.mkdir(exist_ok=True)
    text = report(found, timings, memory(many, large), options.rounds, load)
    (options.out / "gaussians-cpu.md").write_text(text, encoding="utf-8")
    return int(not options.quick and any(row.verdict == "MISSED" for row in found))


def report(
    found: Sequence[Row], timings: dict[str, dict[str, Timing]], peaks: Sequence[str], rounds: int, load: float
) -> str:
    lines = [
        "# Splatting of Gaussians: ours and plain torch",
        "",
        f"Float32; gradients of color and alpha in means, rotations, scales, opacities and colors. Medians of {rounds} "
        "interleaved rounds; in brackets the middle half of the ratios within a round.",
        "",
        f"{machine()}. Load average before: {load:.1f}.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row.cells())} |" for row in found),
        "",
        "Milliseconds:",
        "",
        f"| | {' | '.join(timings)} |",
        "|---|" + "---:|" * len(timings),
    ]
    for who in next(iter(timings.values())):
        cells = [f"{by_who[who].median * 1e3:.1f}" for by_who in timings.values()]
        lines += [f"| {who} | {' | '.join(cells)} |"]
    return "\n".join([*lines, "", "Memory of a step, forward and backward, at its peak:", "", *peaks, ""])


if __name__ == "__main__":
    raise SystemExit(main())
