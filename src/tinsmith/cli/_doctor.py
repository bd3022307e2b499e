"""`tinsmith doctor`: checks that torch and the engines that are installed here are as tinsmith needs them.

It prints one line, and the probes that fail. With `--all` it also prints versions, devices, every probe and caches:
those of its own process, with their names and how large each may become.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import warnings
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._cache import measure_caches
from .._disk_cache import measure_disk_cache
from .._errors import count_noun
from .._version import __version__
from ._import_file import hide_engine_banners
from ._training import leaving_on_interrupt

if TYPE_CHECKING:
    from ..engines import Probe

_PACKAGES = ("torch", "taichi", "quadrants", "numpy")
_NAMED = ("torch", "taichi", "quadrants")
"""The packages whose versions the single line names."""
_MISSING = "not installed"


def doctor(
    everything: Annotated[
        bool, typer.Option("--all", help="Print versions, devices, every probe and the caches.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
) -> None:
    """Check the installed torch and engines: print one line, and the probes that fail.

    A probe tests one property of torch or of an engine that tinsmith relies on. Exit code 1: a probe failed. 2: no
    engine is installed.
    """
    with leaving_on_interrupt():
        from ..engines import choose_default, run_probes
    hide_engine_banners()
    checked = [*_torch_probes(), *run_probes()]
    if as_json:
        shown = {
            "versions": dict(_versions()),
            "devices": dict(_devices()),
            "probes": [{"of": one.package, "fact": one.name, "holds": one.ok, "detail": one.detail} for one in checked],
            "caches": [one._asdict() for one in measure_caches()],
            "cache on disk": measure_disk_cache()._asdict(),
        }
        typer.echo(json.dumps(shown, indent=2))
    else:
        if everything:
            _print_tables(checked)
        _print_outcome(checked)
    if not all(probe.ok for probe in checked):
        raise typer.Exit(1)
    # Raises EngineError if there is no engine, without which no kernel runs.
    choose_default()


def _print_outcome(checked: Sequence[Probe]) -> None:
    """Print one line with the number of probes and the versions that they checked, and each probe that failed."""
    console = Console(highlight=False)
    broken = [probe for probe in checked if not probe.ok]
    outcome = f"{len(broken)} of {len(checked)} probes failed" if broken else f"All {len(checked)} probes pass"
    console.print(f"{outcome}: {', '.join([*_list_versions(), _count_gpus()])}")
    for probe in broken:
        console.print(Text.assemble(("failed", "bold red"), f": {probe.package}: {probe.name}: {probe.detail}"))
    if broken:
        console.print("tinsmith cannot be trusted with these versions. `tinsmith doctor --all` prints everything.")
    elif not _setuptools_loads():
        console.print(
            "torch.compile fails here in a program that imports Quadrants: setuptools, which it needs, does not load "
            "after it. Put `import setuptools` before `import quadrants`."
        )


def _list_versions() -> list[str]:
    versions = dict(_versions())
    return [f"{name} {versions[name]}" for name in _NAMED if versions[name] != _MISSING]


def _count_gpus() -> str:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return count_noun(count, "GPU") if count else "no GPU"


def _print_tables(checked: Sequence[Probe]) -> None:
    """Print versions, devices, probes and caches."""
    console = Console()
    console.print(_table("Versions", ("", "version"), _versions()))
    console.print(_table("Devices", ("", "device"), _devices()))
    console.print(_table("Probes", ("of", "fact", "holds", "detail"), map(_probe_row, checked)))
    caches = [(one.name, f"{one.caches:,}", f"{one.entries:,}", f"{one.most:,}") for one in measure_caches()]
    # A process that only ran probes has none, or few.
    if caches:
        console.print(_table("Caches", ("of", "caches", "entries", "most in each"), caches))
    disk = measure_disk_cache()
    row = (disk.folder, f"{disk.entries:,}", f"{disk.bytes:,}", f"{disk.most:,}")
    console.print(_table("Cache on disk", ("folder", "entries", "bytes", "most bytes"), [row]))


def _versions() -> Iterable[tuple[str, str]]:
    yield "tinsmith", __version__
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    for package in _PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            yield package, _MISSING


def _devices() -> Iterable[tuple[str, str]]:
    import torch

    yield "cpu", f"{platform.machine()}, {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    for index in range(torch.cuda.device_count()):
        yield f"cuda:{index}", torch.cuda.get_device_name(index)
    if not torch.cuda.is_available():
        yield "cuda", "none that torch can use"


def _torch_probes() -> Iterable[Probe]:
    try:
        from ..tracing import torch_probes
    except (AttributeError, ImportError) as error:  # a private name of torch that ops use is gone
        from ..engines import Probe

        return [Probe("ops can be imported", "torch", False, f"no op can be made with this torch: {error}")]
    return torch_probes()


def _setuptools_loads() -> bool:
    """Return True if setuptools, which torch's compiler needs, can be imported after the engines (Python 3.11)."""
    try:
        with warnings.catch_warnings():  # of distutils, which another package has loaded and setuptools replaces
            warnings.simplefilter("ignore")
            importlib.import_module("setuptools")
    except AssertionError:  # its own, that no other distutils is loaded
        return False
    except ImportError:  # torch says so itself
        return True
    return True


def _probe_row(probe: Probe) -> tuple[str, str, str, str]:
    return probe.package, probe.name, "yes" if probe.ok else "NO", probe.detail


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(Text, row))  # Text, since "[n]" in a plain string would be read as markup
    return table
