"""FILE:NAME: import a Python file, and look up a name in it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from .._errors import InputError, refusal
from ._file_names import refuse_unknown


def load_object(file: str, name: str) -> Any:
    """Import a file and return the object with this dotted name. What `if __name__ == "__main__"` guards is not run.

    Raises:
        InputError: there is no such name, or the file fails.
    """
    return _look_up(_run(Path(file)), name, file)


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


def _look_up(module: ModuleType, name: str, file: str) -> Any:
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            refuse_unknown(part, file, name, dir(target))
        target = getattr(target, part)
    return target


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(refusal("the file is not Python", [("file", str(path))], "Name a file that ends in `.py`."))
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and pickle look a module up by its name.
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        with keep_stdout_clean():
            spec.loader.exec_module(module)
    except Exception as cause:
        rows = [("file", str(path)), (type(cause).__name__, str(cause).strip().partition("\n")[0])]
        raise InputError(
            refusal("the Python file fails when it is run", rows, "Run `python FILE` to see the whole traceback.")
        ) from cause
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module


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
