"""`--watch`: run a command again each time that one of the files that it reads changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

_SECONDS = 0.5
"""The time between two looks at the files."""
_INTERRUPTED = 130


def watch(find_files: Callable[[], Iterable[Path]], option: str = "--watch") -> None:
    """Run this process's command without `option` now, and after each change of a file, until Ctrl-C.

    Each run is a process of its own, so that modules which the command imports are read again.

    Args:
        find_files: returns the files that are there now, so that new ones are noticed.
        option: the option to leave out.
    """
    command = [sys.executable, "-m", "tinsmith", *(one for one in sys.argv[1:] if one != option)]
    try:
        while True:
            state = _read_times(find_files)
            subprocess.run(command, check=False)
            typer.echo("Watching for changes; Ctrl-C ends it.", err=True)
            while _read_times(find_files) == state:
                time.sleep(_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _read_times(find_files: Callable[[], Iterable[Path]]) -> dict[Path, tuple[int, int]]:
    """Return the modification time and size of each file. Files that are gone by now are left out."""
    times: dict[Path, tuple[int, int]] = {}
    for file in find_files():
        try:
            status = file.stat()
        except OSError:
            continue
        times[file] = (status.st_mtime_ns, status.st_size)
    return times
