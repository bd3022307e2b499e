"""`tinsmith simulate`: train a differentiable simulation."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..apps import SIMULATIONS, require_folder, require_simulation
from ._training import (
    Device,
    EngineOption,
    Overwrite,
    PagePort,
    QuietPage,
    Resume,
    leaving_on_interrupt,
    name_engine,
    open_live_page,
    report,
)


def simulate(
    name: Annotated[
        str | None, typer.Argument(help="Which simulation. Left out: they are listed.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; created if missing. Default: out/NAME.", show_default=False),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Time steps. Default: the simulation's.", show_default=False)
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Iterations of Adam. Default: the simulation's.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the initial parameters.")] = 0,
    engine: EngineOption = None,
    device: Annotated[Device, typer.Option("--device", "--arch", help="The device to run on.")] = Device.cpu,
    live: Annotated[
        bool, typer.Option("--live", help="Show the training on a page in the browser, and stop it there.")
    ] = False,
    port: PagePort = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: QuietPage = False,
) -> None:
    """Train a simulation, and write pictures, a film and its score."""
    if name is None:
        for known, entry in SIMULATIONS.items():
            typer.echo(f"{known:15} {entry.about}")
        return
    require_simulation(name)
    out = out or Path("out") / name
    require_folder(out)
    with leaving_on_interrupt():
        from ..apps.simulate import SimulateOptions, live_page, progress_bar
        from ..apps.simulate import simulate as run
    options = SimulateOptions(out, name, steps, iterations, seed, name_engine(engine), device.value, resume, overwrite)
    console = Console(quiet=quiet)
    with ExitStack() as stack:
        page = stack.enter_context(open_live_page(live, live_page, port, console))
        bar = progress_bar(console, "training", "iterations", describe="{:.4g}".format)
        watch = None if quiet else stack.enter_context(bar)
        reached = run(options, watch, page)
    report(console, reached)
