"""What a generated gradient costs: beside one written by hand, the engine's own, and plain torch.

    python benchmarks/adjoint.py [--quick] [--rounds 15] [--only splat] [--out FOLDER]

Five natural kernels (`_adjoint_kernels`, `_blend`, and the splat of `tinsmith fit-image`), one of them in two ways, on
both engines. First every way's gradients are compared in float64, on few elements, with `ts.oracle` (`_agreement`): an
engine's reverse mode that is refused, wrong, or ends the process is named and not timed. Then all ways take turns in
one process (`_harness`), in float32: forward and backward, and the backward pass alone. Cold is the first backward
pass of an op less a later one, with nothing in an engine's offline cache: generation and compilation.

Prints one table beside the numbers to hold, and writes it to benchmarks/results/adjoint-cpu.md. `--quick` tries
everything on a few small calls; its numbers mean nothing, so it writes only where `--out` says.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

import tinsmith as ts
from _adjoint_cases import CASES, Case
from _agreement import ENGINES_OWN, GENERATED, TORCH, agreement, leaves_of, outputs_of, ways
from _harness import Call, Effort, Figure, Timing, ratio, timed
from _report import Absent, Row, in_words, markdown, show
from _tape import tape_of
from _ways import ENGINES, Missing, Way, library

RESULTS = Path(__file__).parent / "results"
COLD = 2.0
"""Seconds that generating and compiling a gradient may take."""


@dataclass
class Findings:
    """The results of the benchmark, in the order of the page."""

    rows: list[Row | Absent] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """A case on an engine, with the inputs of its calls."""

    case: Case
    engine: str
    inputs: Sequence[Tensor]
    named: Mapping[str, int]
    cotangents: Sequence[Tensor]

    @property
    def what(self) -> str:
        return f"{self.case.name}, {self.case.size}, {self.engine}"

    def outputs(self, way: Way) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        arguments, leaves = leaves_of(self.inputs)
        return outputs_of(way, arguments, self.named), leaves

    def both(self, way: Way) -> Call:
        arguments, leaves = leaves_of(self.inputs)

        def call() -> None:
            torch.autograd.grad(outputs_of(way, arguments, self.named), leaves, self.cotangents)

        return call

    def backward(self, way: Way) -> Call:
        outputs, leaves = self.outputs(way)

        def call() -> None:
            torch.autograd.grad(outputs, leaves, self.cotangents, retain_graph=True)

        return call


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--quick", action="store_true", help="everything once, small, to see that it works")
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--only", choices=[case.name for case in CASES], help="one of the kernels")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --quick or --only")
    options = asked.parse_args()
    out = options.out or (None if options.quick or options.only else RESULTS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if options.only in (None, case.name)]
    effort = Effort(2, 1e-4, 0.0) if options.quick else Effort(options.rounds, moment=0.02, patience=8.0)
    run(cases, effort, out, is_small=options.quick)


def run(cases: Sequence[Case], effort: Effort, out: Path | None, *, is_small: bool) -> None:
    console = Console(width=None if Console().is_terminal else 200)
    load = os.getloadavg()[0]  # before ours
    findings = Findings()
    engines = list(started(findings.rows))
    pairs = [(case, engine) for case in cases for engine in engines]
    for case, engine in track(pairs, "Measuring", console=Console(stderr=True), transient=True):
        measure(setting(case, engine, is_small=is_small), effort, findings)
    title = "What a generated gradient costs, on cpu"
    show(findings.rows, title, console)
    console.print("\n".join([*findings.times, "", *findings.said]), markup=False, highlight=False)
    if out is None:
        console.print("Nothing was written: --out says where to.")
        return
    how = f"Medians of up to {effort.rounds} interleaved rounds; in brackets the middle half of the rounds. "
    how += f"OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}. Load average before: {load:.1f}. "
    how += "What is measured, and how: `benchmarks/adjoint.py`."
    page = out / "adjoint-cpu.md"
    text = markdown(title, how, findings.rows, said(findings.said), [])
    page.write_text(text + "\n".join(["", "## Times and tapes", "", *TIMES, *findings.times, ""]), "utf-8")
    console.print(f"Written: {page}")


def started(rows: list[Row | Absent]) -> Iterator[str]:
    """Start the installed engines, with empty caches; yield their names. Append a row for each missing one."""
    for name in ENGINES:
        lang = library(name, name, name)
        if isinstance(lang, Missing):
            rows.append(Absent(f"on {name}", lang.reason))
            continue
        with contextlib.redirect_stdout(io.StringIO()):  # Quadrants prints that it starts at any log level
            ts.init("cpu", engine=name, offline_cache=False)
        yield name


def setting(case: Case, engine: str, *, is_small: bool) -> Setting:
    torch.manual_seed(0)
    inputs, named = case.inputs(is_small), case.named(is_small)
    cotangents = [torch.randn_like(made) for made in outputs_of(case.twin, inputs, named)]
    return Setting(case, engine, inputs, named, cotangents)


def measure(at: Setting, effort: Effort, findings: Findings) -> None:
    """Time one kernel on one engine."""
    lang = library(at.engine, at.engine, at.engine)
    judged = agreement(at.engine, at.case)
    findings.said.append(f"| {at.case.name} | {at.engine} | {' | '.join(verdicts(judged))} |")
    able = {name: way for name, way in ways(at.case, lang) if not judged[name]}
    seconds, tape = cold(at, able[GENERATED])
    both = timed({name: at.both(way) for name, way in able.items()}, effort)
    alone = timed({name: at.backward(way) for name, way in able.items()}, effort)
    for what, times in (("backward alone", alone), ("forward and backward", both)):
        findings.rows += compared(f"{at.what}: {what}", at.case, times)
        cells = (in_words(times[name].median) if name in times else "" for name in COLUMNS)
        findings.times.append(f"| {at.case.name}, {at.engine}, {what} | {' | '.join(cells)} | {tape:,} |")
    if judged[ENGINES_OWN]:
        findings.rows.append(Absent(f"{at.what}: beside the engine's own", judged[ENGINES_OWN]))
    figure = Figure(seconds, seconds, seconds)
    findings.rows.append(Row(f"{at.what}: cold", "generated", "", figure, "<=", COLD, None, "s"))


def cold(at: Setting, way: Way) -> tuple[float, int]:
    """Return how much longer the first backward pass takes than later ones, in seconds, and the bytes of its tape."""
    outputs, leaves = at.outputs(way)
    times = []
    with tape_of() as tape:
        for _ in range(3):
            tape.clear()
            start = time.perf_counter()
            torch.autograd.grad(outputs, leaves, at.cotangents, retain_graph=True)
            times.append(time.perf_counter() - start)
    return times[0] - min(times[1:]), sum(tape)


def compared(what: str, case: Case, times: Mapping[str, Timing]) -> Iterator[Row]:
    """Yield rows that compare the generated gradient with every other right one."""
    mine = f"generated: {in_words(times[GENERATED].median)}"
    for name, timing in times.items():
        if name == GENERATED:
            continue
        bar = case.bar if name == "by hand" else None
        other = f"{name}: {in_words(timing.median)}"
        yield Row(what, mine, other, ratio(times[GENERATED], timing), "<=", bar, None, "x its time")


# The rest of the page ---------------------------------------------------------------------
COLUMNS = (GENERATED, "by hand", "by hand, closed form", ENGINES_OWN, TORCH)
HEADS = f"{' | '.join(COLUMNS)}"
TIMES = (f"| what | {HEADS} | bytes of tape |", "|---|" + "---:|" * (len(COLUMNS) + 1))


def verdicts(judged: Mapping[str, str]) -> list[str]:
    return [f"**{judged[name]}**" if judged.get(name) else "right" if name in judged else "" for name in COLUMNS]


def said(lines: Sequence[str]) -> list[str]:
    about = "Gradients in float64, on few elements, beside `ts.oracle`: right is within 1e-9 of the largest number."
    return [about, "", f"| kernel | engine | {HEADS} |", "|---|---|" + "---|" * len(COLUMNS), *lines]


if __name__ == "__main__":
    main()
