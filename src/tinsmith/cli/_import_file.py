"""Imported: a Python file as a module, as the program that it belongs to would import it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from .._errors import InputError, refusal


def import_file(path: Path) -> ModuleType:
    """Import a file and return its module, by its dotted name if it is in a package, else by its own name.

    A file whose name is not a module's, or that of another one (`types.py`), gets a name of its own. Whatever the file
    raises is raised.

    Raises:
        InputError: another file has been imported by its dotted name.
    """
    path = path.resolve()
    folder, name = _place(path)
    if folder not in map(Path, sys.path):
        sys.path.insert(0, str(folder))
    if not _is_importable(name, path):
        return _alone(path)
    # Finders remember what a folder holds, and the file may be newer than that.
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    if not _is_of(module, path):
        rows = [("file", str(path)), ("imported", str(module.__file__))]
        words = f"another file has been imported as `{name}`"
        raise InputError(refusal(words, rows, "Check the two files in separate runs."))
    return module


@contextmanager
def keep_import_path() -> Generator[None]:
    """Restore `sys.path` afterwards."""
    kept = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = kept


def _place(path: Path) -> tuple[Path, str]:
    """Return the folder from which the file's imports start, and the file's dotted name from there."""
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").is_file():
        name = folder.name if name == "__init__" else f"{folder.name}.{name}"
        folder = folder.parent
    return folder, name


def _is_importable(name: str, path: Path) -> bool:
    if path.suffix != ".py" or not all(part.isidentifier() for part in name.split(".")):
        return False
    other = sys.modules.get(name)
    is_free = other is None or _is_of(other, path)
    return "." in name or (is_free and name not in sys.stdlib_module_names)


def _is_of(module: ModuleType, path: Path) -> bool:
    return Path(getattr(module, "__file__", None) or "").resolve() == path


def _alone(path: Path) -> ModuleType:
    name = f"_tinsmith_checks_{path.stem}_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    # Registered before it runs: dataclasses and pickle look a module up by its name.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
