"""What a simulation on fields costs, forward and backward: the engine's tape, `ts.rollout` and `ts.scan`.

    python benchmarks/rollout.py [--rounds 9] [--quick] [--out benchmarks/results]

Three programs in the style of DiffTaichi, with states `[t, i]`. The tape and the rollout run the same kernels on the
same fields; the scan has the same arithmetic as kernels on arrays. All in one process, in interleaved rounds
(`_harness`); the three agree before anything is timed. Each call starts from tensors, and gives the gradient by them.

- springs: 256 masses in a row, 3400 steps of two kernels. Launches are short. To hold: 1.5 times as fast as the tape
  with a rollout or a scan, on the slower engine; aim 3 times.
- mpm: 4096 elastic particles, a grid of 64 x 64, 512 steps of four kernels, with polar decomposition. The grid is
  cleared in each step, so the tape needs a gradient that its author wrote. To hold: not slower; aim twice as fast.
- wave: 256 x 256 cells, 256 steps of one kernel: 134 MB of states.
"""

import argparse
import importlib
import os
import time
from pathlib import Path

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console

import tinsmith as ts
from _harness import Effort, Figure, ratio, timed
from _report import Row, markdown, show
from _simulations import Ways, mpm, springs, wave

RESULTS = Path(__file__).parent / "results"
PROGRAMS = {"springs": (springs, 3400, 1.5, 3.0), "mpm": (mpm, 512, 1.0, 2.0), "wave": (wave, 256, None, None)}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=9)
    asked.add_argument("--quick", action="store_true", help="a twentieth of the steps; its numbers mean nothing")
    asked.add_argument("--only", choices=PROGRAMS, help="one program")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --quick or --only")
    options = asked.parse_args()
    rows: list[Row] = []
    medians: list[str] = []
    for engine in ("taichi", "quadrants"):
        lang = importlib.import_module(engine)
        for name, (program, steps, bar, aim) in PROGRAMS.items():
            if options.only in (None, name):
                ts.init("cpu", engine=engine)
                steps = steps // 20 if options.quick else steps
                new_rows, line = measure(
                    engine, f"{name}, {steps} steps", program(lang, steps), options.rounds, bar, aim
                )
                rows += new_rows
                medians.append(line)
    console = Console(width=None if Console().is_terminal else 200)
    title = "What a simulation on fields costs, on cpu"
    show(rows, title, console)
    console.print(*medians, sep="\n")
    out = options.out or (None if options.quick or options.only else RESULTS)
    if out is None:
        return
    how = f"Medians of up to {options.rounds} interleaved rounds, forward and backward; in brackets the middle half of "
    how += f"the rounds. OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}. What is measured: `benchmarks/rollout.py`."
    out.mkdir(parents=True, exist_ok=True)
    (out / "rollout-cpu.md").write_text(markdown(title, how, rows, medians, []), "utf-8")


def measure(
    engine: str, what: str, ways: Ways, rounds: int, bar: float | None, aim: float | None
) -> tuple[list[Row], str]:
    """Time one program on one engine; return its rows and its medians as text. Raise AssertionError if the ways
    disagree.
    """
    first: dict[str, float] = {}
    results: dict[str, list[torch.Tensor]] = {}
    for name, way in ways.items():
        start = time.perf_counter()
        results[name] = way()
        first[name] = time.perf_counter() - start
    for name, one in results.items():
        for ours, theirs in zip(one, results["tape"], strict=True):
            error = (ours - theirs).norm() / theirs.norm().clamp(min=1e-12)
            assert error < 1e-2, f"{what} on {engine}: {name} differs from the tape by {error:.1e}"
    seconds = timed(ways, Effort(rounds, patience=40.0))
    rows = [
        Row(what, f"{name} on {engine}", "tape", ratio(seconds["tape"], seconds[name]), bar=bar, aim=aim)
        for name in ways
        if name != "tape"
    ]
    rows.append(Row(f"{what}, first call", f"rollout on {engine}", "", Figure.of([first["rollout"]]), "<=", unit="s"))
    times = ", ".join(f"{name} {1e3 * one.median:.0f} ms" for name, one in seconds.items())
    return rows, f"- {what} on {engine}: {times}"


if __name__ == "__main__":
    main()
