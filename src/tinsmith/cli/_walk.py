"""Walk: the Python files that a person means by naming files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from .._errors import InputError, refusal


def python_files(places: Iterable[Path]) -> list[Path]:
    """Return the given files and the `.py` files below the given folders, each once.

    Hidden folders, `__pycache__`, `node_modules` and virtual environments are not entered, but for a folder that is
    named itself.

    Raises:
        InputError: a place does not exist, or there is no Python file in any.
    """
    places = list(places)
    for place in places:
        if not place.exists():
            words = "there is no such file or folder"
            raise InputError(refusal(words, [("got", str(place))], "Check the path."))
    files = [file for place in places for file in (_below(place) if place.is_dir() else [place])]
    if not files:
        rows = [("in", ", ".join(map(str, places)))]
        raise InputError(refusal("there is no Python file to check", rows, "Name files, or a folder that has some."))
    return list(dict.fromkeys(files))


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_entered(Path(root, name)))
        yield from (Path(root, name) for name in sorted(files) if name.endswith(".py"))


def _is_entered(folder: Path) -> bool:
    skipped = folder.name.startswith(".") or folder.name in {"__pycache__", "node_modules"}
    return not skipped and not (folder / "pyvenv.cfg").is_file()
