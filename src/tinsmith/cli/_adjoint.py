"""`tinsmith adjoint`: the source of the gradient that tinsmith generates for a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.syntax import Syntax

from .._errors import InputError, nearest, refusal
from ._file_names import list_kernels, refuse_other, require_defined
from ._import_file import file_and_name, hide_engine_banners, keep_stdout_clean, load_object
from ._training import Engine, leaving_on_interrupt


def adjoint(
    place: Annotated[
        str,
        typer.Argument(
            metavar="FILE[:KERNEL]", help="A Python file, and a kernel or op in it; left out: they are listed."
        ),
    ],
    spec: Annotated[
        str | None, typer.Option(help="The spec of a kernel whose annotations leave the rank of an array open.")
    ] = None,
    wrt: Annotated[
        str | None, typer.Option(help="Inputs to differentiate by, as `x,y`. Default: all floating inputs.")
    ] = None,
    engine: Annotated[Engine | None, typer.Option(help="The engine to print for. Default: that of the kernel.")] = None,
    print_ir_after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PASS", help="Print the compiler's IR after this pass instead (may be repeated), or after `all`."
        ),
    ] = None,
) -> None:
    """Print the generated gradient kernels, with the lines that they come from as comments.

    This imports the file, except for what `if __name__ == "__main__":` guards. Without a kernel, the kernels of the
    file are listed, and nothing is imported.
    """
    file, name = file_and_name(place)
    if not name:
        given = {"--spec": spec, "--wrt": wrt, "--engine": engine and engine.value}
        _refuse_options(file, {**given, "--print-ir-after": ",".join(print_ir_after or ()) or None})
        _list(file)
        return
    require_defined(file, name)  # refused before torch is loaded, and before the file runs
    with leaving_on_interrupt():
        from ..engines import init, list_running, of_kernel
        from ..operation import Op, adjoint_source
        from ..passes import PASS_NAMES
    print_after = _select_passes(print_ir_after or (), PASS_NAMES)
    hide_engine_banners()
    target: Any = load_object(file, name)
    _require_kernel(target, file, name)
    runs_on = (
        engine.value if engine is not None else target.engine if isinstance(target, Op) else of_kernel(target).name
    )
    with keep_stdout_clean():
        if runs_on not in list_running():
            init("cpu", engine=runs_on)
        text = adjoint_source(cast("Any", target), _split(wrt), spec=spec, engine=runs_on, print_after=print_after)
    _print(text, is_source=not print_after)


def _select_passes(names: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Return the passes to print the IR after. Raises InputError for a name that no pass has."""
    for name in names:
        if name not in (*known, "all"):
            guess = nearest(name, known)
            remedy = f"Did you mean `{guess}`?" if guess else "`all` prints after each."
            rows = [("passes", ", ".join(known))]
            raise InputError(refusal(f"--print-ir-after got `{name}`, which is no pass", rows, remedy))
    return known if "all" in names else names


def _refuse_options(file: str, options: Mapping[str, str | None]) -> None:
    """Raise InputError if an option that applies to one kernel is given without naming one."""
    for option, value in options.items():
        if value is not None:
            remedy = f"Name a kernel, as in `{file}:splat`; without {option}, the kernels of the file are listed."
            raise InputError(refusal(f"{option} needs the name of one kernel", [("got", file)], remedy))


def _list(file: str) -> None:
    """Print what can be shown: for each kernel or op the argument that shows it, and what it takes."""
    with leaving_on_interrupt():
        kernels = list_kernels(file)
    width = max(len(kernel.name) for kernel in kernels)
    for kernel in kernels:
        note = "  (needs --spec)" if kernel.needs_spec else ""
        typer.echo(f"{file}:{kernel.name:{width}}  {kernel.signature}{note}".rstrip())


def _require_kernel(target: Any, file: str, name: str) -> None:
    from ..engines import is_kernel
    from ..operation import Op

    if isinstance(target, Op) or is_kernel(target):
        return
    refuse_other(file, name, type(target).__name__)


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _print(text: str, *, is_source: bool) -> None:
    """Print text: Python source in colors on a terminal."""
    console = Console()
    if is_source and console.is_terminal:
        console.print(Syntax(text, "python", background_color="default", word_wrap=False))
    else:
        typer.echo(text, nl=False)
