"""`tinsmith learn-image`: learn a photograph with one network or an array of tiny ones."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .._errors import InputError, refusal
from ..apps import require_folder, require_image
from ._training import (
    Device,
    DeviceOption,
    EngineOption,
    Overwrite,
    PagePort,
    PhotographSize,
    PixelSeed,
    QuietPage,
    Resume,
    leaving_on_interrupt,
    name_engine,
    open_live_page,
    report,
)

_DEFAULT = "default"
_NAMES = "frequency, hash-grid, networks"  # those of apps/learn_image/configs: a test holds it


def _show(name: str | None) -> None:
    if name is None:
        return
    if name not in _NAMES.split(", "):
        raise typer.BadParameter(f"{name!r} is not one of {_NAMES}.", param_hint="--show")
    from ..apps.learn_image import find_shipped_configs

    typer.echo(find_shipped_configs()[name].read_text(encoding="utf-8"), nl=False)
    raise typer.Exit


def learn_image(
    image: Annotated[
        Path, typer.Argument(help=f'The photograph; "{_DEFAULT}" is the one that matplotlib ships.')
    ] = Path(_DEFAULT),
    config: Annotated[
        str, typer.Argument(help=f"A tiny-cuda-nn configuration: a JSON file, or one of {_NAMES}.")
    ] = "hash-grid",
    show: Annotated[  # noqa: ARG001  (its callback does it)
        str | None,
        typer.Option(metavar="CONFIG", callback=_show, is_eager=True, help=f"Print one of {_NAMES}, and stop."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; created if missing.")] = Path("out/learn-image"),
    steps: Annotated[
        int | None, typer.Option(min=1, help="How many steps. Default: the configuration's.", show_default=False)
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Samples per step, for each network. Default: the configuration's.", show_default=False
        ),
    ] = None,
    blocks: Annotated[
        str | None,
        typer.Option(
            metavar="ROWSxCOLUMNS",
            help="Blocks of the image, such as 16x14, with a network for each. Default: the configuration's.",
        ),
    ] = None,
    size: PhotographSize = 512,
    seed: PixelSeed = 1337,
    engine: EngineOption = None,
    device: DeviceOption = Device.cpu,
    live: Annotated[
        bool, typer.Option("--live", help="Show the training on a page in the browser, and control it there.")
    ] = False,
    port: PagePort = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    quiet: QuietPage = False,
) -> None:
    """Learn a photograph with neural networks, and write what they learned, a film and a curve."""
    grid = _grid(blocks)
    if image != Path(_DEFAULT):
        _refuse_configuration(image)
        require_image(image)
    require_folder(out)
    with leaving_on_interrupt():
        from ..apps.learn_image import LearnOptions, live_page, progress_bar, read_launched_processes
        from ..apps.learn_image import learn_image as learn
    options = LearnOptions(
        out=out,
        image=None if image == Path(_DEFAULT) else image,
        config=config,
        steps=steps,
        batch_size=batch_size,
        blocks=grid,
        size=size,
        seed=seed,
        engine=name_engine(engine),
        device=device.value,
        resume=resume,
        overwrite=overwrite,
    )
    processes = read_launched_processes()
    if live:
        processes.require_alone("--live")
    quiet = quiet or not processes.is_first
    console = Console(quiet=quiet)
    with ExitStack() as stack:
        page = stack.enter_context(open_live_page(live, live_page, port, console))
        watch = None if quiet else stack.enter_context(progress_bar(console, "learning"))
        reached = learn(options, watch, page)
    report(console, reached, ", or a lower learning rate in the configuration", processes=processes.count)


def _refuse_configuration(image: Path) -> None:
    """Raise InputError if the image is missing and a configuration file is in its place."""
    if image.exists() and image.suffix != ".json":
        return
    if str(image) in _NAMES.split(", ") or image.suffix == ".json":
        words = f"`{image}` is a configuration, but the first argument is the image"
        remedy = f"Write `learn-image {_DEFAULT} {image}` for the photograph that matplotlib ships."
        raise InputError(refusal(words, [], remedy))


def _grid(blocks: str | None) -> tuple[int, int] | None:
    if blocks is None:
        return None
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", blocks)
    if match is None:
        raise typer.BadParameter(f"{blocks!r} is not rows and columns, such as 16x14.", param_hint="--blocks")
    return int(match[1]), int(match[2])
