"""Many small networks that train at once: ours beside torch's batched products, torch.compile, vmap, and tinn's scheme.

    python benchmarks/networks.py [--quick | --full] [--rounds 7] [--out FOLDER]

A training step is forward, backward and update of networks with 2 inputs, 3 outputs and biases, 64 samples each,
by width, hidden layers, and number of networks. All ways take turns in one process (`_harness`), together with a
large matrix product, which says what this machine could do at that moment. Torch's batched products (`baddbmm`,
`relu_`, a fused Adam) are in every row; the others, which compile for long, in some. A ratio is of the slower of our
two engines. Engines compile again: nothing is taken from their caches on disk.

Then scattered points, and memory, each step in a process of its own. Prints the table beside the numbers to hold, and
writes it to networks-cpu.md; ends with 1 where one is missed. `--quick` tries everything on a few small cases; its
numbers mean nothing, so it writes only where `--out` says, and ends with 0.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Engines import the standard library's distutils, so setuptools, which inductor imports, must use it too.
os.environ.setdefault("SETUPTOOLS_USE_DISTUTILS", "stdlib")

import torch
from rich.console import Console
from rich.progress import track

import _network_ways as ways
import _routed as routed
import tinsmith as ts
from _harness import Effort, Figure, Timing, ratio, timed
from _network_memory import WAYS as MEMORY_WAYS
from _network_memory import in_a_process
from _network_ways import ENGINES, Networks
from _report import HEADINGS, Absent, Row, machine, show

RESULTS = Path(__file__).parent / "results"
EAGER, COMPILED, VMAP, TINN, GEMM = "torch eager", "torch.compile", "vmap", "tinn's scheme", "a large product"
BY_FORWARD = "tinsmith, forward and torch's loss"
BARS = {4: 2.0, 8: 2.0, 16: 2.0, 32: 1.0, 64: 1.0}
SIDE = 1024
"""Of the large matrix product."""


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        grid: networks to compare with torch eager.
        compiled, vmapped, tinn: those of them to compare with these as well.
        tinn_patience: seconds that tinn's scheme may take to compile for width 16.
    """

    grid: list[Networks]
    compiled: list[Networks]
    vmapped: list[Networks]
    tinn: list[Networks]
    tinn_patience: float
    points: int
    routed: Networks
    memory: list[Networks]
    effort: Effort

    @classmethod
    def of(cls, options: argparse.Namespace) -> Plan:
        if options.quick:
            small = [Networks(64, 4, 1), Networks(64, 16, 2)]
            effort = Effort(2, moment=1e-3, patience=2)
            return cls(small, [], small, small[:1], 0, 2000, Networks(routed.SIDE**2, 4, 1), small[1:], effort)
        layers = (1, 2, 3, 4) if options.full else (1, 2, 4)
        counts = (64, 256, 1024, 4096) if options.full else (64, 1024, 4096)
        every = [Networks(cells, width, hidden) for width in BARS for hidden in layers for cells in counts]
        grid = every if options.full else [one for one in every if one.operations < 1e10]
        middle = [Networks(1024, width, 2) for width in BARS]
        tinn = [Networks(cells, 4, hidden) for hidden in (1, 2, 4) for cells in (64, 1024, 4096)]
        compiled = grid if options.full else middle[::2]
        memory = [Networks(4096, width, hidden) for width, hidden in ((4, 2), (16, 2), (16, 4), (32, 2), (64, 1))]
        memory.append(Networks(1024, 64, 4))
        return cls(
            grid,
            compiled,
            grid if options.full else middle,
            [*tinn, Networks(1024, 8, 2)],
            600 if options.full else 60,
            200_000,
            Networks(routed.SIDE**2, 16, 2),
            memory,
            Effort(options.rounds, moment=0.02, patience=3),
        )


@dataclass
class Case:
    """The results for networks of one size: timings of each way, and the seconds of each way's first step."""

    networks: Networks
    timings: dict[str, Timing] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)

    @property
    def ours(self) -> str:
        """The slower of tinsmith's ways: both must meet the targets."""
        return max((on(engine) for engine in ENGINES), key=lambda name: self.timings[name].median)

    def ratio(self, against: str) -> Figure:
        return ratio(self.timings[against], self.timings[self.ours])

    @property
    def share(self) -> float:
        """The rate as a fraction of that of one large matrix product."""
        return self.networks.operations / self.timings[self.ours].median * self.timings[GEMM].median / (2.0 * SIDE**3)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = asked.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few small cases, to see that everything works")
    size.add_argument("--full", action="store_true", help="every case, against everybody: hours")
    asked.add_argument("--rounds", type=int, default=7)
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --quick")
    options = asked.parse_args()
    load = os.getloadavg()[0]  # before ours
    plan = Plan.of(options)
    with contextlib.redirect_stdout(io.StringIO()):
        for engine in ENGINES:
            ts.init("cpu", engine=engine, offline_cache=False)
    cases = [measured(networks, plan) for networks in track(plan.grid, "Networks", console=Console(stderr=True))]
    rows = [*of_widths(cases), *of_peers(cases), *of_compilation(cases, plan), *of_routed(plan)]
    memory = {one: {way: in_a_process(way, one) for way in MEMORY_WAYS} for one in plan.memory}
    rows += of_memory(memory)
    console = Console(width=None if Console().is_terminal else 200)
    show(rows, "Many small networks, on the CPU", console)
    out = options.out or (None if options.quick else RESULTS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "networks-cpu.md").write_text(report(rows, cases, memory, options, load), encoding="utf-8")
    return int(not options.quick and any(isinstance(row, Row) and row.verdict == "MISSED" for row in rows))


def on(engine: str) -> str:
    return f"tinsmith on {engine}"


def measured(networks: Networks, plan: Plan) -> Case:
    """Time every selected way, after checking that all begin with the same loss."""
    x, target = networks.batches()
    steps = {on(engine): ways.ours(networks, engine, x, target) for engine in ENGINES}
    steps[BY_FORWARD] = ways.ours_by_forward(networks, ENGINES[0], x, target)
    steps[EAGER] = ways.eager(networks, x, target)
    if networks in plan.vmapped:
        steps[VMAP] = ways.vmapped(networks, x, target)
    if networks in plan.compiled and not ways.why_not_compiled():
        steps[COMPILED] = ways.compiled(networks, x, target)
    if networks in plan.tinn:
        steps[TINN] = ways.tinn(networks, x, target)
    case = Case(networks)
    losses: dict[str, float] = {}
    for name, step in steps.items():
        begin = time.perf_counter()
        losses[name] = float(step())
        case.first[name] = time.perf_counter() - begin
    require_agreement(networks, losses)
    a, b = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE)
    case.timings = timed({**steps, GEMM: lambda: a @ b}, plan.effort)
    return case


def require_agreement(networks: Networks, losses: Mapping[str, float]) -> None:
    """Exit if a way computes another loss."""
    expected = losses[EAGER]
    for name, loss in losses.items():
        if abs(loss - expected) > 1e-3 * expected:
            raise SystemExit(f"{networks}: {name} computes something else: {loss}, not {expected}")


# Rows of the table ------------------------------------------------------------------------
def of_widths(cases: list[Case]) -> list[Row]:
    """Build two rows for each width: the case in which tinsmith does worst, and the median case, which has no
    target.
    """
    rows: list[Row] = []
    for width, bar in BARS.items():
        of_width = sorted((c for c in cases if c.networks.width == width), key=lambda c: c.ratio(EAGER).middle)
        if of_width:
            worst, middle = of_width[0], of_width[len(of_width) // 2]
            aim = 5.0 if width <= 16 else None
            what = f"step, worst of width {width}: {worst.networks}"
            rows.append(Row(what, worst.ours, EAGER, worst.ratio(EAGER), bar=bar, aim=aim))
            rows.append(
                Row(f"step, median of width {width}: {middle.networks}", middle.ours, EAGER, middle.ratio(EAGER))
            )
    return rows


def of_peers(cases: list[Case]) -> list[Row | Absent]:
    rows: list[Row | Absent] = []
    for case in cases:
        if TINN in case.timings:
            bar = 4.0 if case.networks.width == 4 else None
            rows.append(Row(f"step, {case.networks}", case.ours, TINN, case.ratio(TINN), bar=bar))
    for name in (VMAP, COMPILED):
        sorted_cases = sorted(
            (case for case in cases if name in case.timings), key=lambda case: case.ratio(name).middle
        )
        if sorted_cases:
            rows.append(
                Row(f"step, worst: {sorted_cases[0].networks}", sorted_cases[0].ours, name, sorted_cases[0].ratio(name))
            )
    reason = ways.why_not_compiled()
    return [*rows, Absent("beside torch.compile", reason)] if reason else rows


def of_compilation(cases: list[Case], plan: Plan) -> list[Row | Absent]:
    """Build rows for the longest first steps: tinsmith's, inductor's, and that of tinn's scheme at width 16."""
    rows: list[Row | Absent] = []
    for names, bar in (([on(engine) for engine in ENGINES], 10.0), ([COMPILED], None), ([TINN], None)):
        first = [(case.first[name], name, case.networks) for case in cases for name in names if name in case.first]
        if first:
            seconds, name, networks = max(first, key=lambda one: one[0])
            what = f"longest first step: {networks}"
            rows.append(Row(what, name, "", Figure(seconds, seconds, seconds), "<=", bar, unit="s"))
    return [*rows, tinn_at_16(plan.tinn_patience)] if plan.tinn_patience else rows


def tinn_at_16(patience: float) -> Row | Absent:
    command = [sys.executable, str(Path(__file__).parent / "_tinn_scheme.py"), "16", "2"]
    what = "first step of tinn's scheme at width 16"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return Absent(what, f"compiled for longer than {patience:.0f} s")
    seconds = float(done.stdout.split()[-1])
    return Row(what, TINN, "", Figure(seconds, seconds, seconds), unit="s")


def of_routed(plan: Plan) -> list[Row]:
    rows: list[Row] = []
    for how in ("evenly", "around the middle"):
        calls = routed.ways(plan.routed, plan.points, how)
        outputs = {name: call() for name, call in calls.items()}
        for name, y in outputs.items():
            if not torch.allclose(y, outputs[routed.TORCH], atol=1e-4):
                raise SystemExit(f"scattered {how}: {name} computes something else")
        timings = timed(calls, plan.effort)
        slower = max((name for name in calls if name != routed.TORCH), key=lambda name: timings[name].median)
        what = f"{plan.points:,} points scattered {how}, forward and backward, {plan.routed}"
        rows.append(Row(what, slower, routed.TORCH, ratio(timings[routed.TORCH], timings[slower]), bar=5.0))
    return rows


Memory = Mapping[Networks, Mapping[str, int]]


def bound(networks: Networks) -> int:
    """Return the target for the memory in bytes: twice the parameters (with their gradient), plus the activations of a
    step.
    """
    return 4 * (2 * networks.parameters + networks.activations)


def of_memory(memory: Memory) -> list[Row]:
    rows: list[Row] = []
    for networks, by_way in memory.items():
        engine = max(ENGINES, key=lambda name: by_way[name])
        part = by_way[engine] / bound(networks)
        what = f"memory of a step, {networks}"
        rows.append(Row(what, on(engine), "2 parameters + activations", Figure(part, part, part), "<=", 1.0))
    return rows


# The page ---------------------------------------------------------------------------------
def report(rows: list[Any], cases: list[Case], memory: Memory, options: argparse.Namespace, load: float) -> str:
    lines = [
        "# Many small networks, on the CPU",
        "",
        f"Networks with {ways.N_IN} inputs, {ways.N_OUT} outputs, ReLU and biases, {ways.BATCH} samples each, float32. "
        f"Medians of up to {options.rounds} interleaved rounds; a ratio is of the slower of our engines, in brackets "
        f"the middle half of the ratios within a round. OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}. What is "
        "measured, and how: `benchmarks/networks.py`.",
        "",
        f"{machine()}. Load average before: {load:.1f}.",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
        "",
        "## Training steps, thousands of samples a second",
        "",
        *speeds(cases),
        "",
        "## Peak memory of forward and backward, MB",
        "",
        "The parameters, and what the process grows by. Adam's two moments, the same for all, are not in it.",
        "",
        *megabytes(memory),
    ]
    return "\n".join(lines) + "\n"


def speeds(cases: list[Case]) -> list[str]:
    names = [*map(on, ENGINES), BY_FORWARD, EAGER, VMAP, COMPILED, TINN]
    lines = [
        f"| width | hidden | networks | {' | '.join(names)} | ratio to eager | part of the rate of a large product |"
    ]
    lines.append("|---:|---:|---:|" + "---:|" * (len(names) + 2))
    for case in cases:
        one = case.networks
        cells = [f"{one.samples / case.timings[n].median / 1e3:,.0f}" if n in case.timings else "" for n in names]
        cells += [f"{case.ratio(EAGER).middle:.2f}", f"{case.share:.0%}"]
        lines.append(f"| {one.width} | {one.hidden} | {one.cells:,} | {' | '.join(cells)} |")
    return lines


def megabytes(memory: Memory) -> list[str]:
    heads = ("width", "hidden", "networks", "parameters", "activations", "2 parameters + activations", *MEMORY_WAYS)
    lines = [f"| {' | '.join(heads)} |", "|" + "---:|" * len(heads)]
    for one, by_way in memory.items():
        sizes = [4 * one.parameters, 4 * one.activations, bound(one), *(by_way[way] for way in MEMORY_WAYS)]
        cells = [str(one.width), str(one.hidden), f"{one.cells:,}", *(f"{size / 1e6:.1f}" for size in sizes)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
