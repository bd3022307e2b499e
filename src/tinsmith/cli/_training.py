"""What the commands that train share: where they run, and what they say at the end."""

from __future__ import annotations

from enum import Enum

import typer
from rich.console import Console

from ..apps.fit_image import Reached

_INTERRUPTED = 130  # what a shell expects of a command that Ctrl-C ended


class Engine(str, Enum):
    """Engines that a command can run on."""

    taichi = "taichi"
    quadrants = "quadrants"


class Device(str, Enum):
    """Devices that a training can run on."""

    cpu = "cpu"
    cuda = "cuda"


def report(console: Console, reached: Reached) -> None:
    """Say what was reached and written; exit as a shell expects it of a command that Ctrl-C ended."""
    speed = f" ({reached.seconds:.1f} s, {reached.steps_per_second:.0f} steps/s)"
    if not reached.seconds:
        console.print("The checkpoint had reached the last step; raise --steps to go on.")
        speed = ""
    elif reached.interrupted:
        console.print(f"Stopped after step {reached.step} of {reached.steps}; --resume goes on from there.")
    console.print(f"{reached.psnr:.2f} dB after {reached.step} steps{speed}. Written:", highlight=False)
    for file in reached.files:
        console.print(f"  {file}", highlight=False, soft_wrap=True, markup=False)
    if reached.interrupted:
        raise typer.Exit(_INTERRUPTED)
