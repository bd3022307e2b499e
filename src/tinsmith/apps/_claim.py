"""A lock file in an output folder, so that two runs do not write to one folder at the same time."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .._errors import InputError, refusal
from ._processes import read_launched_processes

_LOCK = ".run.lock"


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Lock an output folder within a `with` block, since two runs would overwrite each other's checkpoints.

    The lock ends with the process, even if it is killed; the lock file names the owner. Of processes that train
    together, only the first one writes files, and only it takes the lock. Does nothing on Windows.

    Raises:
        InputError: another run has locked the folder, or the lock file cannot be written.
    """
    if sys.platform == "win32" or not read_launched_processes().is_first:
        yield
        return
    path = folder / _LOCK
    try:
        descriptor = _lock_file(path)
    except BlockingIOError as cause:
        rows = [("folder", str(folder)), ("lock", str(path)), ("by", _read_owner(path))]
        remedy = "Wait until it ends, or choose another folder with --out."
        raise InputError(refusal("another run writes into the output folder", rows, remedy)) from cause
    except OSError as cause:
        rows = [("lock", str(path)), ("because", cause.strerror or str(cause))]
        remedy = "Choose another folder with --out."
        raise InputError(refusal("the output folder cannot be locked", rows, remedy)) from cause
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _lock_file(path: Path) -> int:
    """Create and lock a file that names this process; return its descriptor. Raise BlockingIOError if it is locked."""
    import fcntl  # Windows has none

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that ended meanwhile may have removed the opened file; its path is then another file, or missing.
            if _is_same(path, descriptor):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _read_owner(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:  # it has ended meanwhile
        return "a process that has just ended"


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
