"""Results of passes that an earlier process left on disk, so that a later one need not compute them again.

`remember` is the only entry. It is for what takes long and follows from content alone: the adjoint, the tangent, the
form for CPUs, the text of a printed kernel. Checks that may warn or refuse run in every process.

The name of an entry is a digest of all that a result follows from: the IR that went in, options, the engine's name and
version, Python's version, and the source of the passes. Only nodes of the IR and records of programs are read: no file
makes the reader import or call anything else.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from .._config import config
from .._disk_cache import name_entry, read_entry, write_entry
from .._version import __version__
from ..engines import COMPILING, Engine
from ..ir import AtomicOperator, Operator, Type, VoteOperator, is_observed, nodes, walk
from ..passes.adjoint import Copy, Decision, Fresh, How, Program, Reserve, Run, TapeSize, WithResults
from ..passes.tangent import Tangent

Result = TypeVar("Result")

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
    version = getattr(engine.home.lang, "__version__", None)
    place = repr((what, __version__, source, sys.version, engine.name, engine.home.name, version))
    # The lock also raises Python's recursion limit, for deep expressions.
    with COMPILING:
        name = name_entry(place, *map(describe, parts()))
        known = read_entry(name)
        found, result = (False, None) if known is None else decode(known)
        if found:
            return result
        made = compute()
        payload = encode(made)
        if payload is not None:
            write_entry(name, payload)
    return made


def _is_in_use() -> bool:
    """Return False where passes are watched or checked, which takes running them."""
    return config().cache and not config().verify and not is_observed()


def describe(value: object) -> str:
    """Return a text that is equal for equal values, and different for others, in all processes.

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
    if is_dataclass(value) and not isinstance(value, type):
        texts = (f"{name}={describe(getattr(value, name))}" for name in _names_of_fields(type(value)))
        return f"{type(value).__qualname__}({', '.join(texts)})"
    raise TypeError(f"a {type(value).__name__} has no text that is the same in all processes")


@functools.cache
def _digest_sources() -> str | None:
    """Return a digest of the source that results follow from; None where it is not at hand."""
    package = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=16)
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


@functools.cache
def _names_of_fields(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def encode(value: object) -> bytes | None:
    """Return the contents of an entry; None for a value that has parts which are not kept on disk."""
    buffer = io.BytesIO()
    try:
        _Writer(buffer, protocol=5).dump(value)
    except (pickle.PicklingError, RecursionError):
        return None
    return buffer.getvalue()


def decode(payload: bytes) -> tuple[bool, Any]:
    """Return whether these are the contents of an entry, and its value."""
    try:
        return True, _Reader(io.BytesIO(payload)).load()
    except Exception:  # noqa: BLE001  # whatever classes raise that are made of other arguments than theirs
        return False, None


class _Writer(pickle.Pickler):
    """Writes values of the classes above, each as a call of its class: what nodes store besides is left out."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type):
            if _is_kept(value):
                return NotImplemented
            raise pickle.PicklingError(f"the class {value.__qualname__} is not kept on disk")
        kind = type(value)
        if not _is_kept(kind):
            raise pickle.PicklingError(f"a {kind.__qualname__} is not kept on disk")
        if isinstance(value, enum.Enum):
            return kind, (value.value,)
        if isinstance(value, tuple):
            return kind, tuple(value)
        return kind, tuple([getattr(value, name) for name in _names_of_fields(kind)])


def _is_kept(kind: type) -> bool:
    return _CLASSES.get((kind.__module__, kind.__qualname__)) is kind


class _Reader(pickle.Unpickler):
    """Reads what `_Writer` writes, and refuses everything else."""

    def find_class(self, module: str, name: str) -> type:
        try:
            return _CLASSES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not kept on disk") from None
