"""Encodings against the same in plain torch: a training step's share, forward and backward.

    python benchmarks/input_encodings.py [--points 100000] [--rounds 9] [--quick] [--out benchmarks/results]

Grids of 16 levels and 2 features, in 2-D and 3-D, with tables of 2^16 and 2^19 slots a level. Who writes one in
plain torch does well to work on all levels at once, a corner of the cells after the other, and to read the table
by `index_select`, whose gradient is twice as fast as that of `table[index]`; that is the way to beat. The readable
twin in `tinsmith.reference`, a level at a time, is shown beside it. Gradients go to the table and to the positions,
and, in a column of its own, to the table alone.

The other encodings are compared with their twins, which are what one would write.

All ways take turns in one process, so that a busy machine meets them alike. Prints the tables and writes them to
encodings-cpu.md. Ends with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from _harness import Call, Effort, Timing, ratio, timed
from _report import HEADINGS, Row, machine, show
from tinsmith import reference
from tinsmith.nn.encodings import Encoding
from tinsmith.reference import GridLevel

RESULTS = Path(__file__).parent / "results"
ENGINES = ("taichi", "quadrants")
BAR = 3.0
LEVELS, FEATURES, SCALE = 16, 2, 1.5
TORCH = "plain torch, all levels at once"
TWIN = "the twin, a level at a time"
Way = Callable[[Tensor, Tensor], Tensor]
"""Positions, parameters -> features."""


class PlainTorch:
    """A grid encoding in plain torch, all levels at once, as fast as we could write it.

    What helps: levels that hash apart from those that count, so that each is computed once; indices and weights of a
    side of the cell computed once for all corners; `index_select`.
    """

    def __init__(self, levels: Sequence[GridLevel], device: str = "cpu") -> None:
        self.counted = sum(not level.is_hashed for level in levels)  # the coarse ones, which come first
        self.scale = torch.tensor([level.scale for level in levels], device=device)[:, None, None]
        self.first = torch.tensor([level.first for level in levels], device=device)[:, None]
        self.size = torch.tensor([level.size for level in levels], device=device)[:, None]
        self.factors = torch.tensor([level.factors for level in levels], device=device)

    def __call__(self, x: Tensor, params: Tensor) -> Tensor:
        table = params.view(-1, FEATURES)
        pos = x * self.scale + 0.5
        cell = pos.detach().floor()
        part = pos - cell
        lower = cell.long() * self.factors[:, None]
        term, weight = (lower, lower + self.factors[:, None]), (1 - part, part)
        total: Tensor | None = None
        for corner in itertools.product((0, 1), repeat=x.shape[1]):
            index = self.slots([term[side][..., dim] for dim, side in enumerate(corner)])
            share = weight[corner[0]][..., 0]
            for dim, side in enumerate(corner[1:], 1):
                share = share * weight[side][..., dim]
            read = table.index_select(0, index.flatten()).view(*index.shape, FEATURES)
            total = share[..., None] * read if total is None else total + share[..., None] * read
        assert total is not None
        return total.permute(1, 0, 2).reshape(len(x), -1)

    def slots(self, terms: Sequence[Tensor]) -> Tensor:
        counted, hashed = terms[0][: self.counted], terms[0][self.counted :]
        for term in terms[1:]:
            counted, hashed = counted + term[: self.counted], hashed ^ term[self.counted :]
        sizes = self.size
        return torch.cat([counted % sizes[: self.counted], hashed & (sizes[self.counted :] - 1)]) + self.first


@dataclass
class Case:
    """One encoding: the ways to compute it, its inputs, and the timings by pass and way."""

    name: str
    ways: dict[str, Way]
    x: Tensor
    params: Tensor
    timings: dict[str, dict[str, Timing]] = field(default_factory=dict)

    def measure(self, effort: Effort) -> None:
        self.require_agreement()
        leaves = {"both gradients": (True, True), "the table's alone": (False, True)}
        if not len(self.params):
            leaves = {"with the gradient": (True, False)}
        asked: dict[str, Callable[[Way], Call]] = {"forward": self.forward}
        asked |= {name: lambda way, which=which: self.backward(way, *which) for name, which in leaves.items()}
        for name, call in asked.items():
            self.timings[name] = timed({who: call(way) for who, way in self.ways.items()}, effort)

    def forward(self, way: Way) -> Call:
        def run() -> None:
            with torch.no_grad():
                way(self.x, self.params)

        return run

    def backward(self, way: Way, by_x: bool, by_params: bool) -> Call:
        x, params = self.x.clone().requires_grad_(by_x), self.params.clone().requires_grad_(by_params)
        leaves = [leaf for leaf in (x, params) if leaf.requires_grad]
        with torch.no_grad():
            weight = torch.randn_like(way(x, params))
        return lambda: torch.autograd.grad(way(x, params), leaves, weight)

    def require_agreement(self) -> None:
        """Exit if a way computes another result."""
        encoded = {name: way(self.x[:1000], self.params) for name, way in self.ways.items()}
        first = next(iter(encoded.values()))
        for name, y in encoded.items():
            difference = (y - first).abs().max().item()
            if difference > 2e-3 * first.abs().max().item():
                raise SystemExit(f"{self.name}: {name} computes something else: differs by {difference:.1e}")

    def ours(self, asked: str) -> str:
        """Return the slower of tinsmith's ways: both must meet the target."""
        return max((w for w in self.ways if "tinsmith" in w), key=lambda w: self.timings[asked][w].median)

    def row(self, asked: str, against: str, bar: float | None) -> Row:
        ours = self.ours(asked)
        figure = ratio(self.timings[asked][against], self.timings[asked][ours])
        return Row(f"{self.name}, {asked}", ours, against, figure, bar=bar)

    def lines(self) -> list[str]:
        lines = [f"| {self.name} | {' | '.join(self.timings)} |", "|---|" + "---:|" * len(self.timings)]
        for who in self.ways:
            cells = (f"{of[who].median * 1e3:.1f}" for of in self.timings.values())
            lines.append(f"| {who} | {' | '.join(cells)} |")
        return [*lines, ""]


def module(encoding: Encoding) -> Way:
    """Return an Encoding as a function of inputs and parameters, in plain calls."""
    return lambda x, params: encoding.encoder(x, params, encoding.engine)


def grid_case(n_dims: int, log2: int, points: int, device: str = "cpu") -> Case:
    config = {"otype": "HashGrid", "n_levels": LEVELS, "per_level_scale": SCALE, "log2_hashmap_size": log2}
    ours = {engine: Encoding(n_dims, config, engine=engine).to(device) for engine in ENGINES}
    levels = reference.grid_levels(n_dims, n_levels=LEVELS, per_level_scale=SCALE, log2_hashmap_size=log2)
    ways = {f"tinsmith on {engine}": module(encoding) for engine, encoding in ours.items()}
    ways |= {TORCH: PlainTorch(levels, device), TWIN: lambda x, p: reference.grid(x, p.view(-1, FEATURES), levels)}
    params = torch.randn(len(ours[ENGINES[0]].params), device=device)
    return Case(f"Grid, {n_dims}-D, 2^{log2} slots", ways, torch.rand(points, n_dims, device=device), params)


def other_case(otype: str, twin: Callable[[Tensor], Tensor], points: int) -> Case:
    ways = {f"tinsmith on {engine}": module(Encoding(3, {"otype": otype}, engine=engine)) for engine in ENGINES}
    ways["the twin"] = lambda x, _: twin(x)
    return Case(otype, ways, torch.rand(points, 3), torch.empty(0))


OTHERS = {
    "Frequency": reference.frequency,
    "TriangleWave": reference.triangle_wave,
    "OneBlob": reference.one_blob,
    "SphericalHarmonics": reference.spherical_harmonics,
}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--points", type=int, default=100_000)
    asked.add_argument("--rounds", type=int, default=9)
    asked.add_argument("--quick", action="store_true", help="little of everything; its numbers mean nothing")
    asked.add_argument("--out", type=Path, default=RESULTS)
    options = asked.parse_args()
    if options.quick:
        options.points, options.rounds = 100, 2
    load = os.getloadavg()[0]  # before ours
    effort = Effort(options.rounds, moment=0.02, patience=60)
    grids = [grid_case(n_dims, log2, options.points) for n_dims in (2, 3) for log2 in (16, 19)]
    others = [other_case(otype, twin, options.points) for otype, twin in OTHERS.items()]
    for case in (*grids, *others):
        case.measure(effort)
    rows = [case.row("both gradients", TORCH, BAR) for case in grids]
    rows += [case.row("the table's alone", TORCH, None) for case in grids]
    rows += [case.row("with the gradient", "the twin", None) for case in others]
    show(rows, "Encodings, against plain torch", Console())
    options.out.mkdir(exist_ok=True)
    page = report(rows, [*grids, *others], options, load)
    (options.out / "encodings-cpu.md").write_text(page, encoding="utf-8")
    return int(not options.quick and any(row.verdict == "MISSED" for row in rows))


def report(rows: Sequence[Row], cases: Sequence[Case], options: argparse.Namespace, load: float) -> str:
    lines = [
        "# Encodings: ours and plain torch",
        "",
        f"{options.points:,} points, float32; grids of {LEVELS} levels of {FEATURES} features, from 16 cells a side, "
        f"each level {SCALE} times as fine. Medians of {options.rounds} interleaved rounds; a ratio is of the slower "
        "of our engines, in brackets the middle half of the ratios within a round.",
        "",
        f"{machine()}. Load average before: {load:.1f}.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
        "",
        "Milliseconds:",
        "",
    ]
    return "\n".join([*lines, *(line for case in cases for line in case.lines())])


if __name__ == "__main__":
    raise SystemExit(main())
