"""What a call costs whose sizes are new, beside the next call with the same sizes. Bar: 10 us more.

    python benchmarks/new_sizes.py [--calls 400]

Ragged work (samples of rays, visible splats) has new sizes in every step. Each size is met twice, one call after the
other, so that both find the machine as busy; printed are medians over all sizes, in microseconds. `y = 3 x` is as
little as an op can do; compositing has batch dims, eight arrays, a serial loop, and a tape whose size follows from
the call's.
"""

import argparse
import importlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}

import torch
from rich.console import Console
from rich.table import Table

import tinsmith as ts

BAR = 10.0
"""Microseconds."""
SMALLEST = 16


def tripled(lang: Any) -> tuple[ts.Op, Callable[[int], list[torch.Tensor]]]:
    """Build the op y = 3 x, and a function from a size to its inputs."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3.0 * x[i]

    return triple, lambda n: [torch.rand(n)]


def composited(lang: Any) -> tuple[ts.Op, Callable[[int], list[torch.Tensor]]]:
    """Build an op that composites colors along rays of 8 samples, and a function from the number of rays to
    its inputs.
    """

    @ts.op("sigma[*b, s], color[*b, s, 3], step[*b, s] -> seen[*b, 3], left[*b]")
    @lang.kernel
    def composite(
        sigma: lang.types.ndarray(),
        color: lang.types.ndarray(),
        step: lang.types.ndarray(),
        seen: lang.types.ndarray(),
        left: lang.types.ndarray(),
    ):
        for _ in range(1):
            light = 1.0
            for k in range(sigma.shape[0]):
                alpha = 1.0 - lang.exp(-sigma[k] * step[k])
                for c in range(3):
                    seen[c] += light * alpha * color[k, c]
                light *= 1.0 - alpha
            left[None] = light

    return composite, lambda n: [torch.rand(n, 8), torch.rand(n, 8, 3), torch.rand(n, 8)]


def timed(op: ts.Op, given: list[torch.Tensor]) -> float:
    """Return the microseconds of a call, with its backward pass if the first input requires a gradient."""
    begin = time.perf_counter()
    made = op(*given)
    if given[0].requires_grad:
        outputs = list(made) if isinstance(made, tuple) else [made]
        torch.autograd.backward(outputs, [torch.ones_like(one) for one in outputs])
    return 1e6 * (time.perf_counter() - begin)


def rows(calls: int) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield (engine, op, timed passes, time with a new size, time with the same size again)."""
    for engine in ("taichi", "quadrants"):
        lang = importlib.import_module(engine)
        ts.init("cpu", engine=engine)
        for make in (tripled, composited):
            op, inputs = make(lang)
            for words, needs in (("forward", False), ("forward and backward", True)):
                met = []
                for n in range(SMALLEST, SMALLEST + calls + 10):
                    given = [one.requires_grad_(needs) for one in inputs(n)]
                    met.append((timed(op, given), timed(op, given)))
                new, again = (statistics.median(column) for column in zip(*met[10:], strict=True))
                yield engine, op.name, words, new, again


def main() -> None:
    """Print a table, and whether the target is met."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--calls", type=int, default=400, help="how many sizes")
    table = Table("engine", "op", "timed", "new size", "again", f"more (bar: {BAR:g})")
    for engine, op, words, new, again in rows(asked.parse_args().calls):
        more = new - again
        table.add_row(engine, op, words, f"{new:.1f}", f"{again:.1f}", f"{more:.1f}{'' if more <= BAR else ' missed'}")
    Console().print(table)


if __name__ == "__main__":
    main()
