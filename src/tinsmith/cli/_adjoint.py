"""`tinsmith adjoint`: the source of the gradient that tinsmith generates for a kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.syntax import Syntax

from .._errors import InputError, refusal
from ._file_names import refuse_other, require_defined
from ._load_object import file_and_name, keep_stdout_clean, load_object
from ._training import Engine, leaving_on_interrupt

if TYPE_CHECKING:
    from ..bridge import Op


def adjoint(
    place: Annotated[str, typer.Argument(metavar="FILE:KERNEL", help="A Python file, and a kernel or op in it.")],
    spec: Annotated[str | None, typer.Option(help="The spec of a kernel whose annotations do not tell ranks.")] = None,
    wrt: Annotated[str | None, typer.Option(help="Inputs that want a gradient: `x,y`; else all of floats.")] = None,
    engine: Annotated[Engine | None, typer.Option(help="Which engine it is for; else the kernel's own.")] = None,
) -> None:
    """Print the gradient that is generated for a kernel, as kernels, below the lines that they come from.

    The file is imported for it: what `if __name__ == "__main__":` guards does not run.
    """
    file, name = file_and_name(place)
    require_defined(file, name)  # refused before torch is loaded, and before the file runs
    with leaving_on_interrupt():
        from ..bridge import Op, adjoint_source
        from ..engines import init, list_installed, list_running, of_kernel
    for one in list_installed():
        os.environ.setdefault(f"ENABLE_{one.upper()}_HEADER_PRINT", "False")
    target = load_object(file, name)
    _require_kernel(target, file, name)
    runs_on = (
        engine.value if engine is not None else target.engine if isinstance(target, Op) else of_kernel(target).name
    )
    with keep_stdout_clean():
        if runs_on not in list_running():
            init("cpu", engine=runs_on)
        text = adjoint_source(_op(target, spec), _split(wrt), runs_on)
    _print(text)


def _require_kernel(target: Any, file: str, name: str) -> None:
    from ..bridge import Op
    from ..engines import is_kernel

    if isinstance(target, Op) or is_kernel(target):
        return
    refuse_other(file, name, type(target).__name__)


def _op(target: Any, spec: str | None) -> Op:
    """A kernel as an op, by a spec that is given or follows from its annotations."""
    from ..bridge import Op, derive_spec, op

    if not isinstance(target, Op):
        return op(spec or derive_spec(target))(target)
    if spec is not None:
        words = f"op `{target.name}` has a spec already"
        raise InputError(refusal(words, [("its own", str(target.spec)), ("--spec", spec)], "Leave --spec out."))
    return cast("Op", target)


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _print(text: str) -> None:
    """In colours for a terminal, else as it is."""
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "python", background_color="default", word_wrap=False))
    else:
        typer.echo(text, nl=False)
