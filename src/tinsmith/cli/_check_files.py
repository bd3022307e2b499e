"""The files of a check: those that a person means by naming files and folders.

`--watch` checks again when one of them changes; `--fix` and `--diff` correct findings whose fix is certain.
"""

from __future__ import annotations

import difflib
import io
import os
import subprocess
import sys
import time
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from .._errors import InputError, refusal

if TYPE_CHECKING:
    from ..linter import Finding


def python_files(places: Iterable[Path], is_excluded: Callable[[Path], bool] = lambda path: False) -> list[Path]:
    """Return the given files and the `.py` files below the given folders, each once; no excluded ones.

    Hidden folders, `__pycache__`, `node_modules` and virtual environments are not entered, but for a folder that is
    named itself. The list is empty only if all files are excluded.

    Raises:
        InputError: a place does not exist, or there is no Python file in any.
    """
    places = list(places)
    for place in places:
        if not place.exists():
            words = "there is no such file or folder"
            raise InputError(refusal(words, [("got", str(place))], "Check the path."))
    files = [
        file
        for place in places
        if not is_excluded(place)
        for file in (_below(place, is_excluded) if place.is_dir() else [place])
    ]
    if not files and not any(map(is_excluded, places)):
        rows = [("in", ", ".join(map(str, places)))]
        remedy = "Name Python files, or a folder that contains some."
        raise InputError(refusal("there is no Python file to check", rows, remedy))
    return list(dict.fromkeys(files))


def _below(folder: Path, is_excluded: Callable[[Path], bool]) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        inside = (Path(root, name) for name in sorted(folders))
        folders[:] = [one.name for one in inside if _is_entered(one) and not is_excluded(one)]
        paths = (Path(root, name) for name in sorted(files) if name.endswith(".py"))
        yield from (one for one in paths if not is_excluded(one))


def _is_entered(folder: Path) -> bool:
    skipped = folder.name.startswith(".") or folder.name in {"__pycache__", "node_modules"}
    return not skipped and not (folder / "pyvenv.cfg").is_file()


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


class FixedFile(NamedTuple):
    """A file with findings that can be fixed: its text before and after, and how it is encoded."""

    path: Path
    before: str
    after: str
    encoding: str
    fixed: int

    def write(self) -> None:
        """Write the new text to the file, encoded as the old one is. Raises InputError."""
        try:
            self.path.write_bytes(self.after.encode(self.encoding))
        except (OSError, UnicodeEncodeError) as cause:
            rows = [("file", str(self.path)), (type(cause).__name__, str(cause))]
            raise InputError(refusal("the file cannot be fixed", rows, "Make it writable.")) from cause

    def diff(self) -> str:
        """Return the changes as a unified diff."""
        before, after = (list(io.StringIO(text, newline="")) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, str(self.path), str(self.path)))


def find_fixes(files: Iterable[Path], is_wanted: Callable[[Finding], bool]) -> Iterator[FixedFile]:
    """Yield the files in which findings can be fixed. Files that cannot be read or parsed are left to the check."""
    from ..doctor import ignore_syntax_warnings
    from ..linter import fix_text

    for path in filter(Path.is_file, files):
        try:
            with path.open("rb") as file:
                encoding = tokenize.detect_encoding(file.readline)[0]
            before = path.read_bytes().decode(encoding)
            # Findings have the whole path, as those of a check.
            with ignore_syntax_warnings():
                after, fixed = fix_text(str(path.resolve()), before, is_wanted)
        except (OSError, SyntaxError, ValueError, LookupError, RuntimeError, MemoryError, RecursionError):
            continue
        if fixed:
            yield FixedFile(path, before, after, encoding, len(fixed))
