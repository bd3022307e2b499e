"""Rendering against the same in plain torch, against nerfacc's, and against the kernel that people copy.

    python benchmarks/rendering.py [--rays 8192] [--samples 64] [--rounds 15] [--out benchmarks/results]

Compositing, forward and backward: gradients of colors, opacities and depths in densities and colors, as a radiance
field is trained, in float32. Dense: as many samples on each ray. Ragged: as many in all, but each ray has its own
number of them. Who writes it in plain torch has a running product for the dense form, and for the ragged one a running
sum that is set back at each ray's start, and `index_add`; over half a million samples that running sum loses three
digits in float32, which is let pass. nerfacc is asked in its batched form, the only one that runs
without CUDA. The kernel that people copy has its race taken out, which bent its gradients by a tenth.

Also: hash grids against plain torch (all of it is in input_encodings.py), how many samples a second are marched, and
how many steps a second fit-scene trains.

All ways take turns in one process, so that a busy machine meets them alike. Prints the tables and writes them to
rendering-cpu.md. Ends with 1 where a bar is missed; with --quick, which measures nothing of worth, it does not.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from torch import Tensor

import _rendering_ways as ways
import input_encodings as encodings
from _harness import Call, Effort, Timing, ratio, timed
from _report import HEADINGS, Absent, Row, machine, show
from tinsmith.apps.fit_scene import SceneOptions, fit_scene
from tinsmith.render import OccupancyGrid, march

RESULTS = Path(__file__).parent / "results"
DENSE, RAGGED = "plain torch, cumprod", "plain torch, cumsum and index_add"
NERFACC = "nerfacc, batched"
COPIED = {"engine": "the copied kernel, the engine's gradient", "source": "the copied kernel, our generated gradient"}
BARS = {DENSE: 2.0, RAGGED: 5.0}
Way = Callable[..., Sequence[Tensor]]
"""Densities, colors, t, steps -> color, opacity, depth, weights."""


@dataclass
class Compositing:
    """One form of samples: the ways to composite them, and their timings."""

    name: str
    ways: dict[str, Way]
    samples: Sequence[Tensor]
    timings: dict[str, dict[str, Timing]] = field(default_factory=dict)

    def measure(self, effort: Effort) -> None:
        self.require_agreement()
        for asked, call in {"forward": self.forward, "forward and backward": self.backward}.items():
            self.timings[asked] = timed({who: call(way) for who, way in self.ways.items()}, effort)

    def forward(self, way: Way) -> Call:
        def run() -> None:
            with torch.no_grad():
                way(*self.samples)

        return run

    def backward(self, way: Way) -> Call:
        densities, colors = (x.clone().requires_grad_() for x in self.samples[:2])
        cotangents = [torch.randn_like(y) for y in way(*self.samples)[:3]]

        def run() -> Sequence[Tensor]:
            seen = way(densities, colors, *self.samples[2:])[:3]
            return torch.autograd.grad(seen, [densities, colors], cotangents)

        return run

    def require_agreement(self) -> None:
        """Exit if a way computes another result."""
        results = {}
        for name, way in self.ways.items():
            torch.manual_seed(1)  # the same cotangents
            results[name] = [*way(*self.samples)[:3], *self.backward(way)()]
        first = next(iter(results.values()))
        for name, tensors in results.items():
            for one, other in zip(tensors, first, strict=True):
                difference = (one - other).abs().max().item()
                if difference > 5e-3 * other.abs().max().item():
                    raise SystemExit(f"{self.name}: {name} computes something else: differs by {difference:.1e}")

    def rows(self) -> list[Row]:
        """Build rows that compare with each other way. The slower of tinsmith's is used, since both must meet the
        target.
        """
        asked = "forward and backward"
        timings = self.timings[asked]
        ours = max((w for w in timings if "tinsmith" in w), key=lambda w: timings[w].median)
        others = [w for w in timings if "tinsmith" not in w]
        return [
            Row(f"{self.name}, {asked}", ours, who, ratio(timings[who], timings[ours]), bar=BARS.get(who))
            for who in others
        ]

    def lines(self) -> list[str]:
        lines = [f"| {self.name} | {' | '.join(self.timings)} |", "|---|" + "---:|" * len(self.timings)]
        for who in self.ways:
            cells = (f"{of[who].median * 1e3:.2f}" for of in self.timings.values())
            lines.append(f"| {who} | {' | '.join(cells)} |")
        return [*lines, ""]


def samples_of(rays: Tensor) -> Sequence[Tensor]:
    """Draw packed samples like those of a trained field: most space is empty, and most rays end in something opaque."""
    s = int(rays[:, 1].sum())
    steps = 0.01 + 0.02 * torch.rand(s)
    ray = torch.arange(len(rays)).repeat_interleave(rays[:, 1])
    within = torch.arange(s) - rays[:, 0][ray]
    densities = torch.rand(s) * torch.where(torch.rand(s) < 0.3, 10.0, 0.1)
    return densities, torch.rand(s, 3), 2 + 0.02 * within, steps


def dense_case(n: int, k: int) -> Compositing:
    rays = torch.stack([torch.arange(n) * k, torch.full((n,), k)], 1).int()
    samples = tuple(x.view(n, k, *x.shape[1:]) for x in samples_of(rays))
    chosen: dict[str, Way] = {f"tinsmith on {engine}": ways.ours(engine) for engine in ways.ENGINES}
    chosen[DENSE] = ways.torch_dense
    if find_spec("nerfacc") is not None:
        chosen[NERFACC] = ways.nerfacc_dense
    return Compositing(f"Compositing, {n:,} rays x {k}", chosen, samples)


def ragged_case(n: int, k: int) -> Compositing:
    counts = torch.randint(0, 2 * k + 1, (n,))
    rays = torch.stack([counts.cumsum(0) - counts, counts], 1).int()
    chosen: dict[str, Way] = {f"tinsmith on {engine}": ways.ours(engine, rays) for engine in ways.ENGINES}
    chosen[RAGGED] = ways.TorchRagged(rays)
    chosen |= {who: ways.copied_kernel("taichi", rays, adjoint) for adjoint, who in COPIED.items()}
    return Compositing(f"Compositing, {n:,} ragged rays, 0 to {2 * k}", chosen, samples_of(rays))


def marching(n: int, effort: Effort) -> list[str]:
    """Time marching in samples per second, through grids with little, half and all of their cells occupied."""
    lines = ["| Marching, million samples/s |" + "".join(f" {engine} |" for engine in ways.ENGINES)]
    lines.append("|---|" + "---:|" * len(ways.ENGINES))
    origins = torch.nn.functional.normalize(torch.randn(n, 3), dim=1) * 3
    directions = torch.nn.functional.normalize(torch.rand(n, 3) - 0.5 - origins, dim=1)
    for share in (0.03, 0.5, 1.0):
        grid = OccupancyGrid((-1, -1, -1, 1, 1, 1), resolution=128)
        places = torch.linspace(-1, 1, 128)
        distance = torch.stack(torch.meshgrid(places, places, places, indexing="ij")).norm(dim=0)
        grid.occupied = (distance <= distance.flatten().quantile(share) if share < 1 else distance >= 0)[None]
        calls = {
            engine: lambda engine=engine, grid=grid: march(origins, directions, grid, step=0.01, engine=engine)
            for engine in ways.ENGINES
        }
        total = len(march(origins, directions, grid, step=0.01, engine=ways.ENGINES[0]).t)
        timings = timed(calls, effort)
        cells = "".join(f" {total / timings[engine].median / 1e6:.1f} |" for engine in ways.ENGINES)
        lines.append(f"| {n:,} rays, a ball of {share:.0%} of 128^3 cells, {total:,} samples |{cells}")
    return [*lines, ""]


def training(steps: int, size: int) -> list[str]:
    """Measure how fast `tinsmith fit-scene` trains a field on the built-in scene, and its final PSNR."""
    lines = [f"| fit-scene, {steps} steps of 2,048 rays, {size} x {size} pixels | steps/s | PSNR of held-out views |"]
    lines.append("|---|---:|---:|")
    for engine in ways.ENGINES:
        with TemporaryDirectory() as out:
            reached = fit_scene(SceneOptions(out=Path(out), steps=steps, size=size, engine=engine))
        lines.append(f"| tinsmith on {engine} | {reached.steps_per_second:.1f} | {reached.psnr:.1f} dB |")
    return [*lines, ""]


def absences() -> list[Absent]:
    return [] if find_spec("nerfacc") else [Absent("Compositing, dense", "nerfacc is not installed")]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rays", type=int, default=8192)
    asked.add_argument("--samples", type=int, default=64)
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--quick", action="store_true", help="little of everything: does it run?")
    asked.add_argument("--out", type=Path, default=RESULTS)
    options = asked.parse_args()
    if options.quick:
        options.rays, options.samples, options.rounds = 64, 8, 2
    load = os.getloadavg()[0]  # before ours
    torch.manual_seed(0)
    effort = Effort(options.rounds, moment=0.05, patience=60)
    cases = [dense_case(options.rays, options.samples), ragged_case(options.rays, options.samples)]
    grid = encodings.grid_case(3, 10, 500) if options.quick else encodings.grid_case(3, 19, 100_000)
    for case in (*cases, grid):
        case.measure(effort)
    rows = [row for case in cases for row in case.rows()]
    rows += [grid.row(kind, encodings.TORCH, encodings.BAR) for kind in ("both gradients", "the table's alone")]
    all_rows = [*rows, *absences()]
    show(all_rows, "Rendering", Console())
    tables = [line for case in (*cases, grid) for line in case.lines()] + marching(options.rays, effort)
    tables += training(2, 16) if options.quick else training(1000, 64)
    options.out.mkdir(exist_ok=True)
    (options.out / "rendering-cpu.md").write_text(report(all_rows, tables, options, load), encoding="utf-8")
    return int(not options.quick and any(row.verdict == "MISSED" for row in rows))


def report(all_rows: Sequence[Row | Absent], tables: Sequence[str], options: argparse.Namespace, load: float) -> str:
    lines = [
        "# Rendering: ours, plain torch, nerfacc, and the kernel that people copy",
        "",
        f"Float32; gradients of color, opacity and depth in densities and colors. Medians of {options.rounds} "
        "interleaved rounds; a ratio is of the slower of our engines, in brackets the middle half of the ratios within "
        "a round.",
        "",
        f"{machine()}. Load average before: {load:.1f}.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row.cells())} |" for row in all_rows),
        "",
        "Milliseconds, and samples:",
        "",
    ]
    return "\n".join([*lines, *tables])


if __name__ == "__main__":
    raise SystemExit(main())
