"""The progress bar of a Trainer. Only this file of `nn` imports rich."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_REFRESH = 0.2  # seconds between two readings of the loss: each one synchronizes a GPU


class Speed(ProgressColumn):
    """The column of the progress bar that shows training steps per second."""

    def render(self, task: Task) -> Text:
        """Return the recent steps per second as text, or a dash before they are known."""
        return Text(f"{task.speed:6.1f} steps/s" if task.speed else "     - steps/s")


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[torch.Tensor], None]]:
    """Show a progress bar with `steps` steps. Yield a function to call after each step with its losses."""
    columns = ("training", BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]}"), Speed())
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("training", total=steps, loss="-")
        read = 0.0

        def show(losses: torch.Tensor) -> None:
            nonlocal read
            progress.advance(task)
            now = time.monotonic()
            if now - read >= _REFRESH or progress.tasks[0].finished:
                read = now
                progress.update(task, loss=f"{losses.mean().item():.3g}")

        yield show
