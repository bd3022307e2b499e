"""Disk cache: programs and kernels that an earlier process generated, so that a later one need not do so again.

`remember` is the only entry. It is used where a result takes long to compute and follows from content alone: the
adjoint, the tangent, the form for CPUs, the text of a printed kernel. Checks that may warn or refuse run in every
process.

An entry is a file whose name is a digest of all that the result follows from: the IR that went in, options, the
engine's name and version, Python's version, and the source of the passes. It begins with a digest of its name and
contents, so a file that is incomplete, damaged, renamed or strange counts as missing, and is replaced. Only nodes of
the IR and records of programs are read: no file makes the reader import or call anything else.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import hashlib
import io
import itertools
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .._config import config
from .._version import __version__
from ..engines import COMPILING, Engine
from ..ir import AtomicOperator, Operator, Type, VoteOperator, is_observed, nodes, walk
from ..passes.adjoint import Copy, Decision, Fresh, How, Program, Reserve, Run, TapeSize, WithResults
from ..passes.tangent import Tangent

Result = TypeVar("Result")

MOST_BYTES = 2**28
"""Bytes of all entries above which the oldest go, until half of it is left."""
_WRITES_PER_CHECK = 64
"""How many entries a process writes before it looks at their sizes again; it looks at the first one, too."""
_SUFFIX = ".tinsmith"
_DIGEST_BYTES = 16
_SOURCES = ("analyses", "codegen", "compiling", "ir", "passes", "spec")
"""Folders of the package that results follow from."""
_CLASSES: Mapping[tuple[str, str], type] = {
    (one.__module__, one.__qualname__): one
    for one in (
        *nodes.NODE_TYPES,
        *(nodes.CarriedLocal, nodes.Array, nodes.Kernel),
        *(Type, Operator, AtomicOperator, VoteOperator),
        *(Program, Fresh, Copy, Run, Reserve, TapeSize, WithResults, Decision, How),
        Tangent,
    )
}
"""What entries are made of, besides Python's own numbers, texts and containers."""


def remember(engine: Engine, what: str, parts: Callable[[], Iterable[object]], compute: Callable[[], Result]) -> Result:
    """Return what an earlier process computed from the same parts; if none did, compute it and write it to disk.

    Args:
        engine: what the result is for.
        what: the name of the computation.
        parts: returns all that the result follows from; called if the cache is in use.
        compute: computes the result. What it raises is not kept.
    """
    source = _digest_sources() if _is_in_use() else None
    if source is None:
        return compute()
    # The lock also raises Python's recursion limit, for deep expressions.
    with COMPILING:
        version = getattr(engine.home.lang, "__version__", None)
        place = (what, __version__, source, sys.version, engine.name, engine.home.name, version)
        name = _digest("\n".join([repr(place), *map(describe, parts())]).encode()).hex()
        path = find_folder() / (name + _SUFFIX)
        found, result = _read(path, name)
        if not found:
            result = compute()
            _write(path, name, result)
    return result


def _is_in_use() -> bool:
    """Return False where passes are watched or checked, which takes running them."""
    return config().cache and not config().verify and not is_observed()


def describe(value: object) -> str:
    """Return a text that is equal for equal values, in all processes.

    Of a kernel it has everything, lines and numbers of statements too. Raises TypeError for other objects than IR,
    records, and Python's own values.
    """
    match value:
        case nodes.Kernel():
            return f"{value!r} {[one.number for one in walk.statements(value.body)]}"
        case enum.Enum() | str() | int() | float() | None:
            return repr(value)
        case AbstractSet():
            return f"{{{', '.join(sorted(map(describe, value)))}}}"
        case Mapping():
            return f"{{{', '.join(f'{describe(key)}: {describe(one)}' for key, one in value.items())}}}"
        case tuple() | list() | range():
            return f"({', '.join(map(describe, value))})"
    if type(value) in _EXPRESSIONS:
        return repr(value)
    if is_dataclass(value) and not isinstance(value, type):
        texts = (f"{one.name}={describe(getattr(value, one.name))}" for one in fields(value))
        return f"{type(value).__qualname__}({', '.join(texts)})"
    raise TypeError(f"a {type(value).__name__} has no text that is the same in all processes")


_EXPRESSIONS = frozenset(nodes.NODE_TYPES)


# Files ------------------------------------------------------------------------------------------


def find_folder() -> Path:
    """Return the folder of the entries, which may not exist."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # Elsewhere than on Windows, no engine is imported where both are missing (`engines`).
    root = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~")) / ".cache"
    return root / "tinsmith" / "programs"


class DiskSize(NamedTuple):
    """How large the cache on disk is.

    Attributes:
        folder: where it is.
        entries: how many files it has.
        bytes: how many these have together.
        most: bytes above which the oldest go.
    """

    folder: str
    entries: int
    bytes: int
    most: int


def measure_disk_cache() -> DiskSize:
    """Return the size of the cache on disk."""
    sizes = [size for _, size, _ in _list_files(find_folder())]
    return DiskSize(str(find_folder()), len(sizes), sum(sizes), MOST_BYTES)


def _list_files(folder: Path) -> list[tuple[float, int, str]]:
    """Return the time, size and path of each of our files, the oldest first."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for one in entries:
            # Another process may have dropped it meanwhile.
            with contextlib.suppress(OSError):
                if one.name.endswith(_SUFFIX) and one.is_file(follow_symlinks=False):
                    about = one.stat(follow_symlinks=False)
                    found.append((about.st_mtime, about.st_size, one.path))
    return sorted(found)


def _read(path: Path, name: str) -> tuple[bool, Any]:
    """Return whether a file holds the entry of this name, and its value."""
    try:
        with open(path, "rb") as file:
            # Text of kernels becomes code: what another user wrote is not ours.
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return False, None
            content = file.read()
    except OSError:
        return False, None
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if digest != _digest(payload, name):
        return False, None
    try:
        return True, _Reader(io.BytesIO(payload)).load()
    # The digest is right, so this is no damage: somebody wrote other classes, or other arguments of these.
    except Exception:  # noqa: BLE001  # whatever these raise
        return False, None


def _write(path: Path, name: str, value: object) -> None:
    """Write an entry, as one step for other processes. Whoever cannot write goes without."""
    buffer = io.BytesIO()
    try:
        _Writer(buffer, protocol=5).dump(value)
    except (pickle.PicklingError, RecursionError):
        return
    payload = buffer.getvalue()
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=path.parent, suffix=_SUFFIX)
        try:
            with open(number, "wb") as file:
                file.write(_digest(payload, name) + payload)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if next(_WRITES) % _WRITES_PER_CHECK == 0:
            _drop_oldest(path.parent)


_WRITES = itertools.count()


def _drop_oldest(folder: Path) -> None:
    files = _list_files(folder)
    total = sum(size for _, size, _ in files)
    if total <= MOST_BYTES:
        return
    for _, size, path in files:
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
        if total <= MOST_BYTES // 2:
            break


# By Python's own code: OpenSSL may hang in a forked process (`_digest`).
def _digest(content: bytes, name: str = "") -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES, key=name.encode()).digest()


@functools.cache
def _digest_sources() -> str | None:
    """Return a digest of the source that results follow from; None where it is not at hand."""
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    try:
        for path in _list_sources(package):
            digest.update(f"{path.relative_to(package)}\n".encode())
            digest.update(path.read_bytes())
    except OSError:
        return None
    return digest.hexdigest()


def _list_sources(package: Path) -> Iterator[Path]:
    for room in _SOURCES:
        paths = sorted((package / room).rglob("*.py"))
        if not paths:
            raise FileNotFoundError(room)
        yield from paths


# Contents ---------------------------------------------------------------------------------------


@functools.cache
def _names_of_fields(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


class _Writer(pickle.Pickler):
    """Writes values of the classes above, each as a call of its class: what nodes store besides is left out."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is type and _CLASSES.get((value.__module__, value.__qualname__)) is value:
            return NotImplemented
        if isinstance(value, enum.EnumMeta) and _CLASSES.get((value.__module__, value.__qualname__)) is value:
            return NotImplemented
        if _CLASSES.get((kind.__module__, kind.__qualname__)) is not kind:
            raise pickle.PicklingError(f"a {kind.__name__} is not kept on disk")
        if isinstance(value, enum.Enum):
            return kind, (value.value,)
        if isinstance(value, tuple):
            return kind, tuple(value)
        return kind, tuple([getattr(value, name) for name in _names_of_fields(kind)])


class _Reader(pickle.Unpickler):
    """Reads what `_Writer` writes, and refuses everything else."""

    def find_class(self, module: str, name: str) -> type:
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not kept on disk") from None
