"""`tinsmith fit-scene`: fit a radiance field to pictures of a scene."""

from __future__ import annotations

from contextlib import ExitStack
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
    PixelSeed,
    Port,
    QuietViewer,
    Resume,
    View,
    leaving_on_interrupt,
    name_engine,
    open_viewer,
    report,
)


def fit_scene(
    dataset: Dataset = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; created if missing.")] = Path("out/fit-scene"),
    steps: Annotated[int, typer.Option(min=1, help="How many steps.")] = 1000,
    rays: Annotated[int, typer.Option(min=1, help="Rays per step, through random pixels.")] = 2048,
    size: PictureSize = 64,
    bound: Annotated[float, typer.Option(help="The scene lies within -bound to bound, on each axis.")] = 1.5,
    samples: Annotated[
        int, typer.Option(min=1, help="Samples of a ray that crosses the whole box, if nothing is skipped.")
    ] = 96,
    background: BackgroundOption = Background.white,
    distortion: Annotated[
        float, typer.Option(min=0, help="Weight of the distortion loss, which penalizes scattered density.")
    ] = 0.0,
    seed: PixelSeed = 1337,
    engine: EngineOption = None,
    device: DeviceOption = Device.cpu,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs to OUT/tensorboard.")
    ] = False,
    view: View = False,
    port: Port = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: QuietViewer = False,
) -> None:
    """Fit a radiance field to pictures of a scene, and render new views."""
    require_dataset(dataset)
    require_folder(out)
    with leaving_on_interrupt():
        from ..apps.fit_scene import SceneOptions, progress_bar, read_launched_processes
        from ..apps.fit_scene import fit_scene as fit
    options = SceneOptions(
        out=out,
        dataset=dataset,
        steps=steps,
        rays=rays,
        size=size,
        bound=bound,
        samples=samples,
        background=background.value,
        distortion=distortion,
        seed=seed,
        engine=name_engine(engine),
        device=device.value,
        tensorboard=tensorboard,
        resume=resume,
        overwrite=overwrite,
    )
    processes = read_launched_processes()
    if view:
        processes.require_alone("--view")
    quiet = quiet or not processes.is_first
    console = Console(quiet=quiet)
    with ExitStack() as stack:
        viewer = stack.enter_context(open_viewer(view, "tinsmith fit-scene", port, console))
        watch = None if quiet else stack.enter_context(progress_bar(console, "fitting", "rays", rays))
        reached = fit(options, watch, viewer)
    report(console, reached, unit="rays", a_step=rays, processes=processes.count)
