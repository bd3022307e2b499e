"""The progress bar of a training: steps, quality, speed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ._film import format_decibels

Watch = Callable[[int, int, float], None]
"""A callback at the start and after each step: the steps taken, all steps, and the PSNR in dB or the loss."""


@contextmanager
def progress_bar(
    console: Console,
    doing: str,
    unit: str = "steps",
    a_step: int = 1,
    describe: Callable[[float], str] | None = None,
) -> Iterator[Watch]:
    """Enter a context that shows a progress bar on `console`, and yields the callback that updates it after each step.

    Args:
        console: the terminal.
        doing: a word that names the activity.
        unit: the unit of the speed, per second.
        a_step: how many units a step has.
        describe: formats the last argument of the callback: a PSNR by default.
    """
    describe = describe or _format_quality
    texts = TextColumn("{task.fields[shown]}"), TextColumn("{task.fields[speed]}")
    columns = (doing, BarColumn(), MofNCompleteColumn(), *texts)
    # If stdout were redirected, Taichi, which is imported within the context, would print a warning into the bar.
    progress = Progress(*columns, TimeRemainingColumn(), console=console, redirect_stdout=False)
    task = progress.add_task(doing, total=None, shown=describe(math.nan), speed=f"- {unit}/s")
    first, start = 0, 0.0
    with ExitStack() as stack:
        stack.callback(progress.stop)

        def watch(step: int, steps: int, shown: float) -> None:
            nonlocal first, start
            # A resumed run does not start at step 0, so its speed is counted from here.
            if progress.tasks[task].total is None:
                progress.reset(task, total=steps, completed=step)
                first, start = step, time.perf_counter()
            progress.update(task, completed=step, shown=describe(shown))
            if step > first:
                # The mean since the start, as in the summary: rich's own speed is that of the last moments.
                rate = (step - first) / (time.perf_counter() - start)
                progress.update(task, speed=format_speed(rate * a_step, unit))
            # The bar is full: later work is not a step.
            if step == steps:
                stack.close()
                console.print("Evaluating and writing the results.")

        progress.start()
        try:
            yield watch
        except BaseException:
            # Remove the bar above an error message.
            progress.live.transient = True
            raise


def _format_quality(psnr: float) -> str:
    return "    - dB" if math.isnan(psnr) else f"{format_decibels(psnr, 2):>8}"


def format_speed(rate: float, unit: str) -> str:
    """Format a speed of `rate` units per second, such as "5.25 steps/s" or "24,576 rays/s"."""
    return f"{rate:,.{0 if rate >= 10 else 2}f} {unit}/s"
