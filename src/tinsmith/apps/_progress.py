"""The progress bar of a training: steps, quality, speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

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
    speed = _Speed(unit, a_step)
    columns = (doing, BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[shown]}"), speed)
    # If stdout were redirected, Taichi, which is imported within the context, would print a warning into the bar.
    progress = Progress(*columns, TimeRemainingColumn(), console=console, redirect_stdout=False)
    task = progress.add_task(doing, total=None, shown=describe(math.nan))
    with ExitStack() as stack:
        stack.callback(progress.stop)

        def watch(step: int, steps: int, shown: float) -> None:
            # A resumed run does not start at step 0, so its speed is counted from here.
            if progress.tasks[task].total is None:
                progress.reset(task, total=steps, completed=step)
            progress.update(task, completed=step, shown=describe(shown))
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


class _Speed(ProgressColumn):
    def __init__(self, unit: str, a_step: int) -> None:
        super().__init__()
        self.unit, self.a_step = unit, a_step

    def render(self, task: Task) -> Text:
        digits = 1 if self.a_step == 1 else 0
        return Text(f"{task.speed * self.a_step:6.{digits}f} {self.unit}/s" if task.speed else f"     - {self.unit}/s")
