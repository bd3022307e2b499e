"""The command `tinsmith`: its list of commands, its version, and how it refuses.

Whatever tinsmith refuses (`TinsmithError`) reaches the user as its own words and exit code 2, the
code of a wrong call, without a traceback. Anything else is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .._errors import TinsmithError
from .._version import __version__
from ._adjoint import adjoint
from ._check import check
from ._doctor import doctor
from ._fit_image import fit_image
from ._fit_scene import fit_scene
from ._fit_splats import fit_splats
from ._learn_image import learn_image
from ._rule import rule
from ._simulate import simulate


class _CommandGroup(TyperGroup):
    """The commands. Errors that tinsmith raises are printed without a traceback."""

    def get_params(self, ctx: Any) -> Any:
        return _hide_flag_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _hide_flag_types(command.get_params(ctx))
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Typer 0.29 shows pydantic's message, which begins with the name of an exception.
            error.message = error.message.removeprefix("Value error, ")
            raise
        except TinsmithError as error:
            typer.echo(f"tinsmith: {error}", err=True)
            raise typer.Exit(2) from error


def _hide_flag_types(params: Any) -> Any:
    """Make help print flags as `--quiet`. Typer prints `--quiet <bool>`, as if a value were to follow."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


app = typer.Typer(
    name="tinsmith",
    cls=_CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tinsmith {__version__}")
        raise typer.Exit


@app.callback()
def tinsmith(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Taichi and Quadrants kernels as safe, fast PyTorch operations."""


app.command("adjoint")(adjoint)
app.command("check")(check)
app.command("doctor")(doctor)
app.command("fit-image")(fit_image)
app.command("fit-scene")(fit_scene)
app.command("fit-splats")(fit_splats)
app.command("learn-image")(learn_image)
app.command("rule")(rule)
app.command("simulate")(simulate)
