"""How long a call takes after a pause: tinsmith on both engines, torch, Numba, Warp and Dr.Jit, side by side on a CPU.

    python benchmarks/pauses.py [--rounds 60] [--quick] [--out benchmarks/results]

Other benchmarks call an op again and again. In a program there is other work between two calls, and a library's threads
sleep then, or wait busily and take the processor from that work. This script times the forward pass of kernels of
`peers.py` at their middle size, each call after a pause, and counts the processor time of all threads in the pause.

Ways take turns in one process. The threads of one way have gone to sleep before the next way's turn, which begins with
three calls that are not counted. `--quick` tries everything on a few calls; its numbers mean nothing, so it writes only
where `--out` says. Run it where all peers are installed (`./scripts/peers` makes such an environment).
"""

from __future__ import annotations

import argparse
import os
import time
from importlib import import_module
from pathlib import Path

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

import tinsmith as ts
from _harness import Timing, keep_memory
from _peer_cases import ABOUT, COUNTS, SIZES, given
from _report import in_words, machine
from peers import ENGINES, Page, checked, makes_of_ways

RESULTS = Path(__file__).parent / "results"
KERNELS = ("saxpy", "springs", "march")
PAUSES = (0.0, 0.001, 0.01, 0.05)
"""Seconds."""


def measure(name: str, size: str, rounds: int, page: Page) -> list[str]:
    """Return the table of one kernel: for each way the time of a call by the pause before it, and the processor time of
    the longest pause.
    """
    ways, _ = checked(given(name, size), makes_of_ways(torch.get_num_threads(), page), page)
    ways.pop("torch.compile", None)
    seconds: dict[str, dict[float, dict[int, float]]] = {who: {pause: {} for pause in PAUSES} for who in ways}
    busy: dict[str, dict[int, float]] = {who: {} for who in ways}
    for number in range(rounds):
        for pause in PAUSES:
            for who, way in ways.items():
                time.sleep(PAUSES[-1])
                for _ in range(3):
                    way.forward()
                cpu = time.process_time()
                if pause:
                    time.sleep(pause)
                busy[who][number] = time.process_time() - cpu
                start = time.perf_counter()
                way.forward()
                seconds[who][pause][number] = time.perf_counter() - start
    heads = ("way", *(f"after {1e3 * pause:g} ms" for pause in PAUSES), f"processor in {1e3 * PAUSES[-1]:g} ms")
    lines = [f"## {name}", "", f"{COUNTS[name][SIZES.index(size)]:,} {ABOUT[name]}.", "", f"| {' | '.join(heads)} |"]
    lines.append("|---|" + "---:|" * (len(heads) - 1))
    for who in ways:
        cells = [in_words(Timing(seconds[who][pause]).low) for pause in PAUSES]
        lines.append(f"| {who} | {' | '.join(cells)} | {in_words(Timing(busy[who]).median)} |")
    return [*lines, ""]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=60)
    asked.add_argument("--quick", action="store_true", help="a few calls, to see that it works")
    asked.add_argument("--out", type=Path, help="folder for the result; benchmarks/results unless --quick")
    options = asked.parse_args()
    rounds, size = (2, "small") if options.quick else (options.rounds, "middle")
    out = options.out or (None if options.quick else RESULTS)
    load, begin = os.getloadavg()[0], time.strftime("%d %B %Y")  # before ours
    keep_memory()
    for engine in ENGINES:
        import_module(engine)
    ts.init("cpu", cpu_max_num_threads=torch.get_num_threads())
    page = Page()
    how = (
        f"The time that a fifth of {rounds} calls stay below, each after a pause in which the process sleeps, and the "
    )
    how += "processor time that its threads take in the longest pause (median)."
    lines = ["# A call after a pause, on cpu", "", how, ""]
    lines += [f"{machine()}. {begin}, load average before: {load:.1f}.", ""]
    for name in KERNELS:
        lines += measure(name, size, rounds, page)
    lines += ["## Left out", "", *[f"- {one}" for one in dict.fromkeys(page.left_out)], ""] if page.left_out else []
    print("\n".join(lines))
    if out is None:
        print("Nothing was written: --out says where to.")
        return
    out.mkdir(parents=True, exist_ok=True)
    (out / "pauses-cpu.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
