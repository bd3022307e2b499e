"""`tinsmith fit-image`: fit a photograph with 2-D Gaussians."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..apps import require_folder, require_image
from ._training import (
    Device,
    DeviceOption,
    EngineOption,
    Overwrite,
    PhotographSize,
    Quiet,
    Resume,
    leaving_on_interrupt,
    name_engine,
    report,
)


def fit_image(
    image: Annotated[
        Path | None, typer.Argument(help="The photograph. Left out: the one that matplotlib ships.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; created if missing.")] = Path("out/fit-image"),
    gaussians: Annotated[int, typer.Option(min=1, help="How many Gaussians.")] = 2000,
    steps: Annotated[int, typer.Option(min=1, help="How many steps of Adam.")] = 500,
    size: PhotographSize = 256,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the initial Gaussians.")] = 0,
    engine: EngineOption = None,
    device: DeviceOption = Device.cpu,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit a photograph with 2-D Gaussians, and write pictures, a film and the Gaussians."""
    require_image(image)
    require_folder(out)
    with leaving_on_interrupt():
        from ..apps.fit_image import FitOptions, progress_bar
        from ..apps.fit_image import fit_image as fit
    options = FitOptions(out, image, gaussians, steps, size, seed, name_engine(engine), device.value, resume, overwrite)
    console = Console(quiet=quiet)
    with nullcontext() if quiet else progress_bar(console, "fitting") as watch:
        reached = fit(options, watch)
    report(console, reached)
