"""What a step of a simulation costs: `ts.scan` beside a Python loop over the same op, forward and backward.

    python benchmarks/scan.py [--rounds 15] [--quick]

All in one process, in interleaved rounds (`_harness`). Three simulations:

- springs: 1000 steps of 256 masses, which pull at their neighbors. Launches are short, so what Python and the
  engine do around them is what is measured. To hold: twice as fast on the slower engine; aim 5 times.
- waves: 100 steps of a wave on 256 x 256 cells, 0.5 MB for a state. What counts is the kernel, and new memory for
  each step.
- function: 300 steps of springs in a Python function that adds a force of torch's own; 30 steps recorded at once.
  What a scan does for each step beside torch is the price of bounded memory.

Printed are medians in milliseconds, and the ratio of medians, with the middle half of the rounds.
"""

import argparse
import importlib
import os
from collections.abc import Callable
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console
from rich.table import Table

import tinsmith as ts
from _harness import Effort, ratio, timed

HELD = 2.0
"""How many times as fast as the loop springs have to be."""
Run = Callable[[], torch.Tensor]


def springs(lang: Any) -> ts.Op:
    """Build the op of a step of 256 masses in a row, each pulled by its neighbors."""

    @ts.op("x[n], v[n], stiffness[] -> x_next[n], v_next[n]")
    @lang.kernel
    def spring(
        x: lang.types.ndarray(),
        v: lang.types.ndarray(),
        stiffness: lang.types.ndarray(),
        x_next: lang.types.ndarray(),
        v_next: lang.types.ndarray(),
    ):
        for i in x:
            left = x[lang.max(i - 1, 0)]
            right = x[lang.min(i + 1, x.shape[0] - 1)]
            w = v[i] + 0.01 * stiffness[None] * (left - 2.0 * x[i] + right)
            v_next[i] = w
            x_next[i] = x[i] + 0.01 * w

    return spring


def waves(lang: Any) -> ts.Op:
    """Build the op of a step of a wave on a grid, from the current and the previous state."""

    @ts.op(
        "now[n, m], before[n, m], speed[] -> following[n, m], kept[n, m]", init={"following": "empty", "kept": "empty"}
    )
    @lang.kernel
    def wave(
        now: lang.types.ndarray(),
        before: lang.types.ndarray(),
        speed: lang.types.ndarray(),
        following: lang.types.ndarray(),
        kept: lang.types.ndarray(),
    ):
        for i, j in now:
            n, m = now.shape[0], now.shape[1]
            around = now[lang.max(i - 1, 0), j] + now[lang.min(i + 1, n - 1), j]
            around += now[i, lang.max(j - 1, 0)] + now[i, lang.min(j + 1, m - 1)]
            following[i, j] = 2.0 * now[i, j] - before[i, j] + speed[None] * (around - 4.0 * now[i, j])
            kept[i, j] = now[i, j]

    return wave


def looped(step: Any, state: tuple[torch.Tensor, ...], number: torch.Tensor, length: int) -> torch.Tensor:
    """Run steps in a Python loop; return the first tensor of the last state."""
    for _ in range(length):
        state = step(*state, number)
    return state[0]


def ways(lang: Any, scale: int) -> dict[str, tuple[Run, Run]]:
    """Build the simulations by name: each as a scan and as a loop."""
    spring, wave = springs(lang), waves(lang)
    number = torch.tensor(0.2, requires_grad=True)

    def pulled(state: tuple[torch.Tensor, ...], force: Any, stiffness: torch.Tensor) -> Any:
        x, v = spring(*state, stiffness)
        return (x, v - 0.001 * torch.sin(x)), None

    def with_gradient(run: Run) -> Run:
        def call() -> torch.Tensor:
            number.grad = None
            end = run()
            end.sum().backward()
            return end

        return call

    def pair(
        step: Any, state: tuple[torch.Tensor, ...], length: int, single: Any = None, unroll: int = 1
    ) -> tuple[Run, Run]:
        single = step if single is None else single
        scanned = with_gradient(lambda: ts.scan(step, state, length=length, parameters=number, unroll=unroll)[0][0])
        return scanned, with_gradient(lambda: looped(single, state, number, length))

    masses = torch.randn(256, requires_grad=True), torch.zeros(256)
    grid = torch.randn(256, 256, requires_grad=True), torch.randn(256, 256)
    return {
        "springs": pair(spring, masses, 1000 // scale),
        "waves": pair(wave, grid, 100 // scale),
        "function": pair(pulled, masses, 300 // scale, lambda x, v, k: pulled((x, v), None, k)[0], unroll=30),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--quick", action="store_true", help="a tenth of the steps; its numbers mean nothing")
    options = asked.parse_args()
    table = Table("simulation", "engine", "scan, ms", "loop, ms", "times as fast", "middle half", "to hold")
    for engine in ("taichi", "quadrants"):
        lang = importlib.import_module(engine)
        ts.init("cpu", engine=engine)
        for name, (scanned, loop) in ways(lang, 10 if options.quick else 1).items():
            timings = timed({"scan": scanned, "loop": loop}, Effort(options.rounds, patience=60.0))
            times = ratio(timings["loop"], timings["scan"])
            middle = f"{times.low:.2f} to {times.high:.2f}"
            bar = "" if name != "springs" else f"{HELD:.0f}: {'held' if times.middle >= HELD else 'missed'}"
            medians = [f"{1e3 * timings[way].median:.1f}" for way in ("scan", "loop")]
            table.add_row(name, engine, *medians, f"{times.middle:.2f}", middle, bar)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
