"""A Python file imported as the program that it belongs to would import it, and FILE:NAME, a name in one.

Standard output is kept for results meanwhile.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from .._errors import InputError, refusal
from ._file_names import refuse_unknown


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


def load_object(file: str, name: str) -> Any:
    """Import a file and return the object with this dotted name. What `if __name__ == "__main__"` guards is not run.

    Raises:
        InputError: there is no such name, or the file fails.
    """
    try:
        with keep_import_path(), keep_stdout_clean():
            target: Any = import_file(Path(file))
    except Exception as cause:
        rows = [("file", file), (type(cause).__name__, str(cause).strip().partition("\n")[0])]
        remedy = "Run `python FILE` to see the whole traceback."
        raise InputError(refusal("the Python file fails when it is run", rows, remedy)) from cause
    for part in name.split("."):
        if not hasattr(target, part):
            refuse_unknown(part, file, name, dir(target))
        target = getattr(target, part)
    return target


def file_and_name(place: str) -> tuple[str, str]:
    """Split `FILE:NAME` into FILE and NAME, which is "" for a FILE alone.

    Raises:
        InputError: it is not written so, or there is no such file.
    """
    file, colon, name = place.rpartition(":") if ":" in Path(place).name else (place, "", "")
    if not file or (colon and not name):
        words = "the argument is not FILE:KERNEL, a Python file and a kernel or op in it"
        raise InputError(refusal(words, [("got", place)], "Write it as in `kernels.py:splat`."))
    if not Path(file).is_file():
        raise InputError(refusal("the Python file does not exist", [("file", file)], "Check the path."))
    return file, name


def hide_engine_banners() -> None:
    """Keep engines from printing their versions when they are imported, unless the environment asks for it."""
    from ..engines import list_installed

    for name in list_installed():
        os.environ.setdefault(f"ENABLE_{name.upper()}_HEADER_PRINT", "False")


@contextmanager
def keep_stdout_clean() -> Generator[None]:
    """Send to standard error what is printed to standard output meanwhile, also by engines."""
    sys.stdout.flush()
    # The descriptor and not `sys.stdout`: the C++ of engines writes to it.
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
