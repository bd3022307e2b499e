"""Rendering in rounds against rendering all samples at once, without gradients.

    python benchmarks/rounds.py [--side 64] [--rounds 15] [--threads 1] [--out benchmarks/results]

A picture of a ball whose colors come from a hash grid and two layers of 64 neurons. The ball is opaque, so that rays
end at its surface, or a cloud, through which they go to the end. At once: `march`, the field, `composite`. In rounds:
`render_in_rounds` as it is by default, and with as little as one sample of each ray in a round.

All ways take turns in one process, so that a busy machine meets them alike; one that sees something else ends the run.
Prints the tables and writes them to rounds-cpu.md. No number here has a bar to hold: where rays go to the end, rounds
cannot win.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}

import torch
from rich.console import Console
from torch import Tensor

import tinsmith as ts
from _harness import Effort, Timing, ratio, timed
from _report import HEADINGS, Row, machine, show
from tinsmith.render import OccupancyGrid, composite, march, pinhole_rays, render_in_rounds

RESULTS = Path(__file__).parent / "results"
ENGINES = ("taichi", "quadrants")
AT_ONCE, IN_ROUNDS, ONE_SAMPLE = "at once", "in rounds", "in rounds, round_samples=1"
SCENES = {"an opaque ball": 1e3, "a ball of cloud": 0.5}
"""Densities: of what is behind the surface, less than 1e-4 is left after a step; of the cloud, a third behind it."""
RADIUS, STEP = 0.8, 0.02
Field = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Ball:
    """A field with the density of a ball, which counts the samples that it is evaluated at."""

    def __init__(self, density: float, engine: str) -> None:
        encoding = {"otype": "HashGrid", "n_levels": 8, "log2_hashmap_size": 14, "base_resolution": 8}
        layers = {"otype": "FullyFusedMLP", "activation": "ReLU", "n_neurons": 64, "n_hidden_layers": 2}
        self.network = ts.nn.NetworkWithInputEncoding(3, 3, encoding, layers, engine=engine)
        self.density, self.asked = density, 0

    def __call__(self, positions: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        self.asked += len(positions)
        colors = self.network((positions + 1) / 2).sigmoid()
        return self.density * (positions.square().sum(1) < RADIUS**2), colors


def rays_of_picture(side: int) -> tuple[Tensor, Tensor]:
    """Return origins and directions of a camera 3 away from the ball, which fills most of the picture."""
    pose = torch.eye(4)
    pose[2, 3] = -3.0
    intrinsics = torch.tensor([[1.7 * side, 0, side / 2], [0, 1.7 * side, side / 2], [0, 0, 1]])
    middles = torch.arange(side) + 0.5
    pixels = torch.stack(torch.meshgrid(middles, middles, indexing="xy"), -1).reshape(-1, 2)
    origins, directions, *_ = pinhole_rays(pose, intrinsics, pixels)
    return origins, directions


def occupied_grid() -> OccupancyGrid:
    """Build an occupancy grid of the cells that contain a part of the ball, with a margin."""
    grid = OccupancyGrid((-1, -1, -1, 1, 1, 1), resolution=32)
    places = (torch.arange(32) + 0.5) / 16 - 1
    distances = torch.stack(torch.meshgrid(places, places, places, indexing="ij")).norm(dim=0)
    grid.occupied = (distances < RADIUS + 0.06)[None]
    return grid


def ways_of(field: Field, rays: tuple[Tensor, Tensor], engine: str) -> dict[str, Callable[[], Tensor]]:
    """Return the ways to render, by name; each returns the colors of the rays."""
    grid = occupied_grid()

    @torch.no_grad()
    def at_once() -> Tensor:
        samples = march(*rays, grid, step=STEP, engine=engine)
        densities, colors = field(samples.positions(*rays), samples.directions(rays[1]))
        path = (samples.t, samples.steps, samples.rays)
        return composite(densities, colors, *path, threshold=1e-4, engine=engine).color

    def in_rounds(round_samples: int = 8) -> Callable[[], Tensor]:
        return lambda: render_in_rounds(*rays, grid, field, step=STEP, round_samples=round_samples, engine=engine).color

    return {AT_ONCE: at_once, IN_ROUNDS: in_rounds(), ONE_SAMPLE: in_rounds(1)}


def count_samples(field: Ball, ways: dict[str, Callable[[], Tensor]]) -> dict[str, int]:
    """Count the samples that each way evaluates the field at. Exit if a way renders other colors."""
    seen, counts = {}, {}
    for name, way in ways.items():
        field.asked = 0
        seen[name] = way()
        counts[name] = field.asked
    for name, colors in seen.items():
        difference = (colors - seen[AT_ONCE]).abs().max().item()
        if not difference <= 1e-4:
            raise SystemExit(f"Rounds: {name} sees something else: differs by {difference:.1e}")
    return counts


def measured(side: int, effort: Effort) -> Iterator[tuple[str, dict[str, int], dict[str, Timing]]]:
    """Time each scene and engine; yield its name, the number of samples by way, and the timings."""
    rays = rays_of_picture(side)
    for scene, density in SCENES.items():
        for engine in ENGINES:
            torch.manual_seed(0)
            field = Ball(density, engine)
            ways = ways_of(field, rays, engine)
            counts = count_samples(field, ways)
            yield f"{scene}, {side} x {side}, on {engine}", counts, timed(ways, effort)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--side", type=int, default=64)
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--threads", type=int, default=1, help="of torch and of the engines")
    asked.add_argument("--quick", action="store_true", help="little of everything: does it run?")
    asked.add_argument("--out", type=Path, default=RESULTS)
    options = asked.parse_args()
    if options.quick:
        options.side, options.rounds = 8, 2
    load = os.getloadavg()[0]  # before ours
    torch.set_num_threads(options.threads)
    for engine in ENGINES:
        ts.init("cpu", engine=engine)  # as many threads as torch
    rows, lines = [], []
    for what, counts, timings in measured(options.side, Effort(options.rounds, moment=0.05, patience=60)):
        rows += [Row(what, way, AT_ONCE, ratio(timings[AT_ONCE], timings[way])) for way in (IN_ROUNDS, ONE_SAMPLE)]
        for way, timing in timings.items():
            share = counts[way] / counts[AT_ONCE]
            lines.append(f"| {what} | {way} | {timing.median * 1e3:.2f} | {counts[way]:,} | {share:.0%} |")
    show(rows, "Rendering in rounds", Console())
    text = report(rows, lines, options, load)
    print("\n".join(lines))
    options.out.mkdir(exist_ok=True)
    (options.out / "rounds-cpu.md").write_text(text, encoding="utf-8")
    return 0


def report(rows: Sequence[Row], lines: Sequence[str], options: argparse.Namespace, load: float) -> str:
    return "\n".join(
        [
            "# Rendering in rounds, and all at once",
            "",
            f"Float32, without gradients; threads: {options.threads}. Medians of {options.rounds} interleaved rounds; "
            "in brackets the middle half of the ratios within a round. How many times faster than at once: above 1, "
            "rounds are.",
            "",
            f"{machine()}. Load average before: {load:.1f}.",
            "",
            f"| {' | '.join(HEADINGS)} |",
            "|---|---|---|---|---|---|",
            *(f"| {' | '.join(row.cells())} |" for row in rows),
            "",
            "| picture | rendered | ms | samples that the field is asked for | of those at once |",
            "|---|---|---:|---:|---:|",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
