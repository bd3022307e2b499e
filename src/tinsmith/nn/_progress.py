"""The progress bar of a Trainer. The one file of `nn` that loads rich."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

_REFRESH = 0.2  # seconds from one reading of the loss to the next: reading makes a GPU wait


class Speed(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        """Of the last while; a dash at the start."""
        return Text(f"{task.speed:6.1f} steps/s" if task.speed else "     - steps/s")


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[torch.Tensor], None]]:
    """A bar of so many steps; what it gives is called after each with its losses."""
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
