"""What `y = 3 x` costs by its number of elements: tinsmith on both engines, torch and Numba, side by side on a CPU.

    python benchmarks/sizes.py [--rounds 60] [--only 65536 1048576] [--quick] [--out benchmarks/results]

All in one process, in interleaved rounds. Everybody makes a new tensor for the result. Numba is the faster of its loop
on one thread and its loop on several. On a machine that other programs use, a low quantile of the rounds is less noise
than a median, so both are compared: the ratio that counts is that of the lowest tenth of the rounds. The second table
takes a call of ours apart: what Python does, the engine's launch of nothing, the loop on memory that was used before,
and the rest, which new pages of the result cost. `--quick` tries everything on small calls; its numbers mean nothing,
so it writes only where `--out` says. `./scripts/peers` has an environment with Numba.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

import tinsmith as ts
from _harness import Call, Effort, Timing, timed
from _kernels import triple
from _report import in_words, machine

RESULTS = Path(__file__).parent / "results"
ENGINES = ("taichi", "quadrants")
SIZES = (1, 64, 1024, 16_384, 65_536, 131_072, 262_144, 1_048_576, 3_000_000, 10_000_000)
BAR = 1.3
"""How many times as long as the faster of torch and Numba our faster engine may take."""
LOW = 0.1
"""The share of the rounds that are faster than what is compared."""
Row = tuple[str, ...]


def low(timing: Timing) -> float:
    """Return the seconds that a tenth of the rounds took less than."""
    return sorted(timing.rounds.values())[int(LOW * len(timing.rounds))]


def numba_ways(x: torch.Tensor) -> dict[str, Call]:
    """Return Numba's loops on one thread and on several; none without Numba."""
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return {}
    three, numbers = np.float32(3), x.numpy()

    def loop(numbers: Any, results: Any) -> None:
        for i in numba.prange(len(numbers)):
            results[i] = three * numbers[i]

    def way(kernel: Any) -> Call:
        def call() -> torch.Tensor:
            result = torch.empty(len(numbers))
            kernel(numbers, result.numpy())
            return result

        return call

    compiled = numba.njit(fastmath=True)(loop), numba.njit(fastmath=True, parallel=True)(loop)
    return dict(zip(("Numba, one thread", "Numba"), map(way, compiled), strict=True))


def measure(size: int, ops: Mapping[str, ts.Op], effort: Effort) -> dict[str, Timing]:
    """Time one size in all ways."""
    x = torch.rand(size)
    ways: dict[str, Call] = {f"tinsmith, {engine}": lambda op=op: op(x) for engine, op in ops.items()}
    ways |= {"torch": lambda: 3.0 * x} | numba_ways(x)
    for way in ways.values():
        torch.testing.assert_close(way(), 3.0 * x)
    return timed(ways, effort)


def take_apart(size: int, op: ts.Op, effort: Effort) -> tuple[float, float, float, float]:
    """Return the seconds of a call: Python, the launch of no element, the loop, and what new memory costs."""
    x, none, kept = torch.rand(size), torch.empty(0), torch.empty(size)
    op(x)

    def launch(given: torch.Tensor) -> Call:
        start, slots = launch_of(op, given)
        pairs = zip(slots, (given, kept if given is x else none), strict=True)
        arrays = tuple((slot, one.data_ptr(), one.nbytes, tuple(one.shape), 0) for slot, one in pairs)
        return lambda: start(arrays, ())

    timings = timed(
        {"call": lambda: op(x), "empty": launch(none), "kept": launch(x), "nothing": lambda: op(none)}, effort
    )
    call, empty, used, nothing = (low(timings[name]) for name in ("call", "empty", "kept", "nothing"))
    return nothing - empty, empty, used - empty, max(call - nothing - (used - empty), 0.0)


def launch_of(op: ts.Op, x: torch.Tensor) -> tuple[Any, tuple[Any, ...]]:
    """Return what starts the op's kernel on memory given by addresses, and the engine's places of its two arrays."""
    program = op._core.programs.get(next(iter(op._core.programs)))
    assert program is not None
    run = program._forward.find(program.solve([x.shape], {}), {})
    # The written function names its launch and the places.
    is_tuple = "launch((((0,)" in (run.__doc__ or "")
    return run.__globals__["launch"], ((0,), (1,)) if is_tuple else (0, 1)


def table_of_sizes(measured: Mapping[int, Mapping[str, Timing]]) -> list[str]:
    """Return the table of times and ratios as Markdown."""
    names = list(next(iter(measured.values())))
    lines = [
        f"| elements | {' | '.join(names)} | ratio | of medians | |",
        "|---:|" + "---:|" * (len(names) + 2) + "---|",
    ]
    for size, timings in measured.items():
        ratios = [ratio_of(timings, by) for by in (low, lambda one: one.median)]
        cells = [in_words(low(timings[name])) for name in names]
        verdict = "held" if ratios[0] <= BAR else "MISSED"
        lines.append(f"| {size:,} | {' | '.join(cells)} | {ratios[0]:.2f} | {ratios[1]:.2f} | {verdict} |")
    return lines


def ratio_of(timings: Mapping[str, Timing], by: Any) -> float:
    """Return how many times as long our faster engine takes as the faster of the others."""
    ours = min(by(one) for name, one in timings.items() if name.startswith("tinsmith"))
    return ours / min(by(one) for name, one in timings.items() if not name.startswith("tinsmith"))


def plot(measured: Mapping[int, Mapping[str, Timing]], file: Path) -> None:
    """Draw the nanoseconds that an element costs, by the number of elements, a line for each way."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(8, 5), layout="constrained")
    for name in next(iter(measured.values())):
        seconds = [1e6 * low(timings[name]) for timings in measured.values()]
        is_ours = name.startswith("tinsmith")
        style = "--" if name.endswith(("quadrants", "one thread")) else "-"
        color = "#d1495b" if is_ours else "#222222" if name == "torch" else "#4f6d8f"
        panel.plot(
            list(measured),
            seconds,
            style,
            color=color,
            label=name,
            linewidth=2.4 if is_ours else 1.4,
            marker="o",
            markersize=3,
        )
    panel.set(xscale="log", yscale="log", xlabel="elements", ylabel="microseconds a call", title="y = 3 x, by its size")
    panel.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=60)
    asked.add_argument("--only", type=int, nargs="*", default=SIZES, help="sizes")
    asked.add_argument("--quick", action="store_true", help="everything once, on small calls, to see that it works")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --quick or --only")
    options = asked.parse_args()
    sizes = (1, 64, 1000) if options.quick else tuple(options.only)
    out = options.out or (None if sizes != SIZES else RESULTS)
    load, begin = os.getloadavg()[0], time.strftime("%d %B %Y")  # before ours
    effort = Effort(2, 1e-4) if options.quick else Effort(options.rounds, 1e-3, patience=6.0)
    ops: dict[str, ts.Op] = {}
    for engine in ENGINES:
        lang = import_module(engine)
        ts.init("cpu", engine=engine)
        ops[engine] = ts.op("x[n] -> y[n]")(triple(lang))
    measured = {size: measure(size, ops, effort) for size in sizes}
    parts = ["| elements | engine | Python | launch | loop | new memory |", "|---:|---|---:|---:|---:|---:|"]
    for size in sizes:
        for engine, op in ops.items():
            cells = " | ".join(map(in_words, take_apart(size, op, effort)))
            parts.append(f"| {size:,} | {engine} | {cells} |")
    threads = [line.strip() for line in str(ops["quadrants"].explain("all")).splitlines() if "waking threads" in line]
    how = f"The lowest tenth of {effort.rounds} interleaved rounds; *ratio*: our faster engine and the faster of "
    how += f"the others, at most {BAR:g}."
    lines = [
        "# `y = 3 x` by its size, on cpu",
        "",
        how,
        "",
        f"{machine()}. {begin}, load average before: {load:.1f}.",
        "",
    ]
    lines += [*threads, "", *table_of_sizes(measured), "", "## What a call consists of", "", *parts, ""]
    print("\n".join(lines))
    if out is None:
        print("Nothing was written: --out says where to.")
        return
    out.mkdir(parents=True, exist_ok=True)
    plot(measured, out / "sizes-cpu.png")
    (out / "sizes-cpu.md").write_text("\n".join([*lines, "![the same as lines](sizes-cpu.png)", ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
