"""`tinsmith fit-splats`: fit Gaussians to pictures of a scene."""

from __future__ import annotations

from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..apps import require_dataset, require_folder
from ._training import (
    Background,
    BackgroundOption,
    Dataset,
    Device,
    DeviceOption,
    EngineOption,
    Overwrite,
    PictureSize,
    Port,
    QuietViewer,
    Resume,
    View,
    leaving_on_interrupt,
    name_engine,
    open_viewer,
    report,
)


class Strategy(str, Enum):
    """How Gaussians are added and removed."""

    default = "default"
    mcmc = "mcmc"


def fit_splats(
    dataset: Dataset = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; created if missing.")] = Path("out/fit-splats"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps; each uses one picture.")] = 1000,
    size: PictureSize = 64,
    gaussians: Annotated[int, typer.Option(min=1, help="The initial number of Gaussians.")] = 2000,
    most: Annotated[
        int, typer.Option(min=1, help="The maximum number of Gaussians; they grow to about this number.")
    ] = 20_000,
    degree: Annotated[
        int,
        typer.Option(min=0, max=4, help="Degree of the spherical harmonics, by which colors depend on the direction."),
    ] = 2,
    strategy: Annotated[
        Strategy,
        typer.Option(
            help="How Gaussians are added and removed: clone, split and prune, or relocate as in a Markov chain."
        ),
    ] = Strategy.default,
    background: BackgroundOption = Background.white,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of the initial Gaussians and of the order of the pictures.")
    ] = 1337,
    engine: EngineOption = None,
    device: DeviceOption = Device.cpu,
    view: View = False,
    port: Port = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: QuietViewer = False,
) -> None:
    """Fit Gaussians to pictures of a scene, and render new views."""
    require_dataset(dataset)
    require_folder(out)
    with leaving_on_interrupt():
        from ..apps.fit_splats import SplatOptions, progress_bar
        from ..apps.fit_splats import fit_splats as fit
    options = SplatOptions(
        out=out,
        dataset=dataset,
        steps=steps,
        size=size,
        gaussians=gaussians,
        most=most,
        degree=degree,
        strategy=strategy.value,
        background=background.value,
        seed=seed,
        engine=name_engine(engine),
        device=device.value,
        resume=resume,
        overwrite=overwrite,
    )
    console = Console(quiet=quiet)
    with ExitStack() as stack:
        viewer = stack.enter_context(open_viewer(view, "tinsmith fit-splats", port, console))
        watch = None if quiet else stack.enter_context(progress_bar(console, "fitting"))
        reached = fit(options, watch, viewer)
    report(console, reached)
