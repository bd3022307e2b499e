"""What the commands that train share: where they run, and what they say at the end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer
from rich.console import Console

from .._errors import count_noun

if TYPE_CHECKING:  # it loads torch, which the commands do when they run: --help needs none
    from ..apps.scenes import Viewer
    from ..apps.simulate import Outcome

_INTERRUPTED = 130  # what a shell expects of a command that Ctrl-C ended


class Served(Protocol):
    """A page that is served."""

    url: str


Page = TypeVar("Page", bound=Served)


class Engine(str, Enum):
    """Engines that a command can run on."""

    taichi = "taichi"
    quadrants = "quadrants"


class Device(str, Enum):
    """Devices that a training can run on."""

    cpu = "cpu"
    cuda = "cuda"


class Background(str, Enum):
    """Backgrounds of the pictures of a scene."""

    white = "white"
    black = "black"


def name_engine(engine: Engine | None) -> str:
    """Return the name of the engine that an option names, or of the default one.

    Raises:
        EngineError: no engine is installed.
    """
    from ..engines import choose_default

    return choose_default() if engine is None else engine.value


# Options that several commands have: each is described once.
Dataset = Annotated[
    Path | None,
    typer.Argument(
        help="A folder with transforms_train.json (Blender's form), transforms.json, or a reconstruction of "
        "COLMAP's. Left out: a scene of tinsmith's own is rendered first.",
        show_default=False,
    ),
]
PhotographSize = Annotated[int, typer.Option(min=1, help="Longer side in pixels; a smaller image is not enlarged.")]
PictureSize = Annotated[int, typer.Option(min=16, help="Longer side of a picture in pixels; larger ones are shrunk.")]
BackgroundOption = Annotated[
    Background, typer.Option(help="Background color. Transparent pictures are trained on random backgrounds.")
]
PixelSeed = Annotated[
    int, typer.Option(min=0, help="Random seed of the initial weights and of the pixels that are drawn.")
]
EngineOption = Annotated[
    Engine | None,
    typer.Option(help="The engine that runs the kernels. Default: Taichi if it is installed, else Quadrants."),
]
DeviceOption = Annotated[Device, typer.Option(help="The device to run on.")]
View = Annotated[
    bool, typer.Option("--view", help="Open a viewer in the browser, to walk around in the scene during training.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the viewer; 0 picks a free one.")]
PagePort = Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 picks a free one.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint in OUT.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Start afresh, and replace an earlier run in OUT.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
QuietViewer = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors, and the viewer's URL.")]
QuietPage = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors, and the page's URL.")]


@contextmanager
def leaving_on_interrupt() -> Generator[None]:
    """End the process at once on Ctrl-C: torch, interrupted while it is imported, would print a long traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(_INTERRUPTED)

    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def open_viewer(view: bool, title: str, port: int, console: Console) -> Generator[Viewer | None]:
    """Enter a context with a viewer if `view`, else None.

    Its URL is printed even where `console` is quiet: without it nobody finds the page.

    Raises:
        ConfigError: viser is not installed.
        InputError: the port is taken.
    """
    if not view:
        yield None
        return
    from ..apps.scenes import viewer_page

    with viewer_page(title, port, console.print) as viewer:
        Console().print(f"Walk around at {viewer.url} (it stays until Ctrl-C)", highlight=False, soft_wrap=True)
        yield viewer


@contextmanager
def open_live_page(
    live: bool, serve: Callable[[int, Callable[..., object]], AbstractContextManager[Page]], port: int, console: Console
) -> Generator[Page | None]:
    """Enter a context with the live page that `serve` serves if `live`, else None.

    Its URL is printed even where `console` is quiet: without it nobody finds the page.

    Raises:
        InputError: the port is taken.
    """
    if not live:
        yield None
        return
    with serve(port, console.print) as page:
        Console().print(f"Watch it at {page.url} (it stays until Ctrl-C)", highlight=False, soft_wrap=True)
        yield page


def report(
    console: Console, reached: Outcome, remedy: str = "", *, unit: str = "", a_step: int = 0, processes: int = 1
) -> None:
    """Say what was reached and written; exit as a shell expects it of a command that Ctrl-C ended.

    Args:
        console: where to say it.
        reached: what to say.
        remedy: what else may help where nothing was learned.
        unit: what a step is made of, such as rays; their speed is said too.
        a_step: how many of them a step takes.
        processes: how many trained together.
    """
    speed = reached.describe_speed(unit, a_step)
    speed = f" ({speed} by {processes} processes)" if processes > 1 else f" ({speed})"
    if reached.details:
        console.print(reached.details, highlight=False)
    if reached.interrupted:
        console.print(f"Stopped after {reached.unit} {reached.step} of {reached.steps}; --resume goes on from there.")
    elif not reached.seconds:
        console.print(
            f"The checkpoint had reached {reached.unit} {reached.step}; raise --{reached.unit}s to go on.",
            highlight=False,
        )
        speed = ""
    written = "Written:" if reached.files else "Nothing was written: the files are there."
    console.print(f"{reached.score} after {count_noun(reached.step, reached.unit)}{speed}. {written}", highlight=False)
    for file in reached.files:
        console.print(f"  {file}", highlight=False, soft_wrap=True, markup=False)
    if reached.remark:
        console.print(f"{reached.remark} More steps may help{remedy}.", highlight=False)
    if reached.interrupted:
        raise typer.Exit(_INTERRUPTED)
