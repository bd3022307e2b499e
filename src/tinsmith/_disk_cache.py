"""A cache on disk, whose entries later processes find by name. The callers define the contents.

A file begins with a digest of its name and contents: one that is incomplete, damaged, renamed or foreign counts as
missing. A reader never waits for a writer, and sees only whole entries; all writers of one name write the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from ._errors import InputError
from ._untrusted import open_untrusted

MOST_BYTES = 2**28
"""The total size of all entries above which the oldest are deleted, until half of it is left."""
_FOLDERS = 64
"""The number of folders that entries are spread over. Each may take an equal part of the total size."""
_WRITES_PER_CHECK = 64
"""A process checks the size of a folder at its first write, and again after this number of writes.

To list the files of a full cache, some 100,000, takes a second; those of one folder take 10 ms.
"""
_SUFFIX = ".tinsmith"
_DIGEST_BYTES = 16
_WRITES = itertools.count()


class DiskSize(NamedTuple):
    """The size of the cache on disk.

    Attributes:
        folder: its folder.
        entries: the number of files.
        bytes: the total size of the files.
        most: the total size above which the oldest are deleted.
    """

    folder: str
    entries: int
    bytes: int
    most: int


def find_folder() -> Path:
    """Return the folder of the whole cache. It may not exist yet."""
    # A relative one is to be ignored: freedesktop.org's "XDG Base Directory Specification".
    candidates = (os.environ.get("XDG_CACHE_HOME", ""), os.path.join(os.path.expanduser("~"), ".cache"))
    # A user without a home folder has no cache: `os.devnull` is not a folder.
    root = next(filter(os.path.isabs, candidates), os.devnull)
    return Path(root, "tinsmith", "programs")


def measure_disk_cache() -> DiskSize:
    """Return the size of the cache on disk."""
    sizes = [size for number in range(_FOLDERS) for _, size, _ in _list_files(find_folder() / str(number))]
    return DiskSize(str(find_folder()), len(sizes), sum(sizes), MOST_BYTES)


def name_entry(*parts: str) -> str:
    """Return the name of the entry for these texts: their digest."""
    return _digest("\0".join(parts).encode()).hex()


def read_entry(name: str) -> bytes | None:
    """Return the contents of an entry; None if there is none."""
    try:
        with open_untrusted(_find_path(name), InputError, MOST_BYTES) as file:
            # Entries are executed as code, so those of another user are not trusted.
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            content = file.read()
    except InputError:
        return None
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return payload if digest == _digest(payload, name) else None


def write_entry(name: str, payload: bytes) -> None:
    """Write an entry, atomically for other processes. Do nothing if the folder cannot be written."""
    path = _find_path(name)
    folder = path.parent
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=folder, suffix=_SUFFIX)
        try:
            with open(number, "wb") as file:
                file.write(_digest(payload, name) + payload)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if next(_WRITES) % _WRITES_PER_CHECK == 0:
            _drop_oldest(folder)


def _find_path(name: str) -> Path:
    """Return the path of an entry's file."""
    return find_folder() / str(int(name[:8], 16) % _FOLDERS) / (name + _SUFFIX)


def _list_files(folder: Path) -> list[tuple[float, int, str]]:
    """Return the time, size and path of each entry's file, the oldest first."""
    listed = []
    with contextlib.suppress(OSError), os.scandir(folder) as files:
        for one in files:
            # Another process may have dropped it meanwhile.
            with contextlib.suppress(OSError):
                if one.name.endswith(_SUFFIX) and one.is_file(follow_symlinks=False):
                    about = one.stat(follow_symlinks=False)
                    listed.append((about.st_mtime, about.st_size, one.path))
    return sorted(listed)


def _drop_oldest(folder: Path) -> None:
    """Delete the oldest files of a folder if its files together exceed their share of `MOST_BYTES`."""
    files = _list_files(folder)
    total, most = sum(size for _, size, _ in files), MOST_BYTES // _FOLDERS
    if total <= most:
        return
    for _, size, path in files:
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= most // 2:
            break


def _digest(content: bytes, name: str = "") -> bytes:
    # BLAKE2 is Python's own code: OpenSSL may hang in a forked process (`_cache.digest_of`).
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES, key=name.encode()).digest()
