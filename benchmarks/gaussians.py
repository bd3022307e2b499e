"""Splatting of 3-D Gaussians against the same in plain torch, a tile at a time, and against gradients by hand.

    python benchmarks/gaussians.py [--gaussians 10000] [--side 128] [--rounds 15] [--out benchmarks/results]

Everything from means, rotations, scales, opacities and colors to an image with alpha, and back to their gradients, in
float32. All ways take turns in one process, so that a busy machine meets them alike; one that computes something else
ends the run. Memory is that of a step with many Gaussians, each way in five processes of its own.

Prints the table and writes it to gaussians-cpu.md. Ends with 1 where a bar is missed; with --quick, which measures
nothing of worth, it does not.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

import _gaussian_ways as ways
from _gaussian_hand_ops import ORDERS, Order
from _harness import Effort, Figure, Timing, ratio, timed
from _report import HEADINGS, Row, machine, show

RESULTS = Path(__file__).parent / "results"
TORCH = "plain torch, by tiles"
BAR, AIM = 3.0, 8.0
BAR_BY_HAND, AIM_BY_HAND = 1.3, 1.1
BAR_OF_MEMORY = 1.5


def ours(engine: str) -> str:
    return f"tinsmith on {engine}"


def by_hand(engine: str, order: Order) -> str:
    return f"by hand, {order}, on {engine}"


def chosen() -> dict[str, ways.Way]:
    all_ways = {TORCH: ways.by_tiles}
    for engine in ways.ENGINES:
        all_ways[ours(engine)] = ways.ours(engine)
        all_ways |= {by_hand(engine, order): ways.by_hand(engine, order) for order in ORDERS}
    return all_ways


def require_agreement(given: Sequence[Tensor], side: int) -> None:
    """Exit if a way computes another result. In float64, also compare generated with hand-written gradients."""
    results = {name: [*way(*given, side=side), *ways.step(way, given, side)()] for name, way in chosen().items()}
    for name, tensors in results.items():
        require_close(name, tensors, results[TORCH], 5e-3)
    exact = [tensor.double() for tensor in ways.scene(300, 48)]
    for engine in ways.ENGINES:
        generated = ways.step(ways.ours(engine), exact, 48)()
        for order in ORDERS:
            require_close(by_hand(engine, order), ways.step(ways.by_hand(engine, order), exact, 48)(), generated, 1e-9)


def require_close(name: str, tensors: Sequence[Tensor], others: Sequence[Tensor], bound: float) -> None:
    for one, other in zip(tensors, others, strict=True):
        difference = (one - other).norm() / other.norm()
        if not difference <= bound:
            raise SystemExit(f"Gaussians: {name} computes something else: differs by {difference:.1e}")


def forward(way: ways.Way, given: Sequence[Tensor], side: int) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            way(*given, side=side)

    return run


def measured(given: Sequence[Tensor], side: int, effort: Effort) -> dict[str, dict[str, Timing]]:
    """Time all ways; return the timings by pass, then by way."""
    calls = {
        "forward": {who: forward(way, given, side) for who, way in chosen().items()},
        "forward and backward": {who: ways.step(way, given, side) for who, way in chosen().items()},
    }
    return {what: timed(by_who, effort) for what, by_who in calls.items()}


def rows(timings: dict[str, dict[str, Timing]], what: str) -> list[Row]:
    """Build rows that compare each engine with torch, and with the faster of the hand-written gradients."""
    all_rows = []
    for asked, by_who in timings.items():
        has_backward = "backward" in asked
        bar, aim = (BAR, AIM) if has_backward else (None, None)
        for engine in ways.ENGINES:
            mine = by_who[ours(engine)]
            all_rows.append(Row(f"{what}, {asked}", ours(engine), TORCH, ratio(by_who[TORCH], mine), bar=bar, aim=aim))
            if has_backward:
                best = min((by_hand(engine, order) for order in ORDERS), key=lambda who: by_who[who].median)
                times = ratio(mine, by_who[best])
                all_rows.append(
                    Row(f"{what}, {asked}", ours(engine), best, times, "<=", bar=BAR_BY_HAND, aim=AIM_BY_HAND)
                )
    return all_rows


def memory_rows(peaks: Mapping[str, Sequence[ways.Memory]], what: str) -> list[Row]:
    parts = "inputs, gradients, lists, image"
    return [
        Row(
            f"{what}, memory of a step",
            ours(engine),
            parts,
            Figure.of(peak.taken / peak.needed for peak in processes),
            "<=",
            BAR_OF_MEMORY,
        )
        for engine, processes in peaks.items()
    ]


def memory_table(peaks: Mapping[str, Sequence[ways.Memory]], what: str) -> list[str]:
    lines = [
        f"| {what} | inputs, MB | inputs, gradients, lists, image, MB | inputs and step, MB |",
        "|---|---:|---:|---:|",
    ]
    for engine, processes in peaks.items():
        peak = sorted(processes, key=lambda one: one.taken)[len(processes) // 2]
        lines.append(f"| {ours(engine)} | " + " | ".join(f"{size / 1e6:.1f}" for size in peak) + " |")
    return lines


def describe_size(n: int, side: int) -> str:
    return f"{n:,} Gaussians, {side} x {side}"


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
    all_rows = rows(timings, describe_size(options.gaussians, options.side))
    processes = range(1 if options.quick else 5)
    peaks = {engine: [ways.measure_in_a_process(engine, many, large) for _ in processes] for engine in ways.ENGINES}
    all_rows += memory_rows(peaks, describe_size(many, large))
    show(all_rows, "Gaussians", Console())
    options.out.mkdir(exist_ok=True)
    text = report(all_rows, timings, memory_table(peaks, describe_size(many, large)), options.rounds, load)
    (options.out / "gaussians-cpu.md").write_text(text, encoding="utf-8")
    return int(not options.quick and any(row.verdict == "MISSED" for row in all_rows))


def report(
    all_rows: Sequence[Row], timings: dict[str, dict[str, Timing]], peaks: Sequence[str], rounds: int, load: float
) -> str:
    lines = [
        "# Splatting of Gaussians: ours and plain torch",
        "",
        f"Float32; gradients of color and alpha in means, rotations, scales, opacities and colors. Medians of {rounds} "
        "interleaved rounds; in brackets the middle half of the ratios within a round. Gradients by hand are those of "
        "blending, projection and covariances, with the faster of two kernels for blending.",
        "",
        f"{machine()}. Load average before: {load:.1f}.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row.cells())} |" for row in all_rows),
        "",
        "Milliseconds:",
        "",
        f"| | {' | '.join(timings)} |",
        "|---|" + "---:|" * len(timings),
    ]
    for who in next(iter(timings.values())):
        cells = [f"{by_who[who].median * 1e3:.1f}" for by_who in timings.values()]
        lines += [f"| {who} | {' | '.join(cells)} |"]
    return "\n".join(
        [
            *lines,
            "",
            "Memory of a step, forward and backward, at its peak, the median of five processes:",
            "",
            *peaks,
            "",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
