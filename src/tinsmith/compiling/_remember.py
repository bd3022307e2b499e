"""Disk cache for results of passes, so that later processes need not compute them again.

`remember` is the only entry point. It is for results that take long and depend on content alone: a kernel's IR, the
adjoint, the tangent, the forms and the text that an engine gets, the conflicts of parallel loops, what a launch costs.
Checks that may warn or refuse run in every process.

The name of an entry is a digest of everything that a result depends on: the input IR, options, the engine's name and
version, Python's version, and the source of the passes. Of a kernel that is itself from an entry, the contents of that
entry stand for the IR. Only nodes of the IR and records of programs are loaded: no file makes the reader import or call
anything else.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import io
import pickle
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .. import analyses
from .._config import config
from .._disk_cache import name_entry, read_entry, write_entry
from .._version import __version__
from ..engines import COMPILING, Engine
from ..ir import AtomicOperator, Operator, Type, VoteOperator, is_observed, nodes, walk
from ..passes import adjoint, tangent

Result = TypeVar("Result")

_SOURCES = ("analyses", "calls", "codegen", "compiling", "engines", "frontend", "ir", "passes", "spec")
"""Folders of the package whose source determines the results."""


def remember(
    engine: Engine,
    what: str,
    parts: Callable[[], Iterable[object]],
    compute: Callable[[], Result],
    given: Sequence[nodes.Kernel] = (),
) -> Result:
    """Return a result from the disk cache, or compute it and write it there.

    Args:
        engine: the engine that the result is for.
        what: the name of the computation.
        parts: returns everything that the result depends on; called if the cache is in use.
        compute: computes the result. Exceptions are not cached.
        given: kernels that the result may contain unchanged. They are not copied: the result refers to the same
            objects.
    """
    source = _digest_sources() if keeps_results() else None
    if source is None:
        return compute()
    version = getattr(engine.home.lang, "__version__", None)
    place = repr((what, __version__, source, sys.version, engine.name, engine.home.name, version))
    # The lock also raises Python's recursion limit, for deep expressions.
    with COMPILING:
        name = name_entry(place, *map(describe, parts()))
        known = read_entry(name)
        entry = None if known is None else decode(known, given)
        if entry is not None:
            return entry.value
        made = compute()
        payload = encode(made, given)
        if payload is not None:
            write_entry(name, payload)
    return made


_ENTRIES: weakref.WeakKeyDictionary[nodes.Kernel, str] = weakref.WeakKeyDictionary()
"""The first entry that each kernel is in, by its contents, and the kernel's place in it."""
_DIGESTS: weakref.WeakKeyDictionary[nodes.Kernel, str] = weakref.WeakKeyDictionary()
"""Digests of other kernels."""


def _digest_kernel(kernel: nodes.Kernel) -> str:
    """Return a text that is equal for equal kernels only: of the entry that it is in, or of all that it contains.

    A kernel contains lines and numbers of statements, too.
    """
    known = _ENTRIES.get(kernel) or _DIGESTS.get(kernel)
    if known is None:
        text = f"{kernel!r} {[one.number for one in walk.statements(kernel.body)]}"
        known = _DIGESTS[kernel] = name_entry(text)
    return known


def _note_entry(payload: bytes, kernels: Iterable[nodes.Kernel]) -> None:
    """Note which entry kernels are in, in the order in which they are in it.

    Its contents stand for them, so who reads an entry need not describe what it has read. Not its name: where a pass
    leaves an order open, processes may write other contents under one name.
    """
    name = hashlib.blake2b(payload, digest_size=16).hexdigest()
    for place, kernel in enumerate(kernels):
        _ENTRIES.setdefault(kernel, f"{name} {place}")


_OF_KERNELS = (*nodes.NODE_TYPES, nodes.CarriedLocal, nodes.Array, nodes.Kernel)
_KERNEL_CLASSES: Mapping[tuple[str, str], type] = {
    (one.__module__, one.__qualname__): one for one in (*_OF_KERNELS, Type, Operator, AtomicOperator, VoteOperator)
}
"""The classes that kernels are made of, besides Python's own numbers, texts and containers."""


@functools.cache
def _list_records() -> Mapping[tuple[str, str], type]:
    """Return the classes of programs, tangents and conflicts that entries may contain. Called when one is met, since it
    loads the passes of gradients.
    """
    records = (
        *(adjoint.AdjointProgram, adjoint.Fresh, adjoint.Copy, adjoint.Run, adjoint.Reserve, adjoint.TapeSize),
        *(adjoint.WithResults, adjoint.Decision, adjoint.How, tangent.Tangent),
        *(analyses.Conflict, analyses.Verdict, analyses.LoopAccess, analyses.Condition),
    )
    return {(one.__module__, one.__qualname__): one for one in records}


def _find_class(module: str, name: str) -> type | None:
    """Return the class with this module and name if entries may contain its objects, or None for any other class."""
    return _KERNEL_CLASSES.get((module, name)) or _list_records().get((module, name))


def keeps_results() -> bool:
    """Return True if the cache is on and no pass is observed or verified, which would require that the passes run."""
    return config().cache and not config().verify and not is_observed()


def describe(value: object) -> str:
    """Return a text that is equal for equal values and different for others, in all processes.

    The text of a kernel contains everything, including lines and numbers of statements. Raises TypeError for objects
    other than IR, records, and Python's own values.
    """
    match value:
        case nodes.Kernel():
            return _digest_kernel(value)
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
    raise TypeError(
        f"a {type(value).__name__} cannot be a key of the cache on disk: its text may differ between processes"
    )


@functools.cache
def _digest_sources() -> str | None:
    """Return a digest of the source files that results depend on; None if they cannot be read."""
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


class Given:
    """Stands in an entry for one of the reader's kernels, by its number. The reader replaces it by that kernel."""


def encode(value: object, given: Sequence[nodes.Kernel] = ()) -> bytes | None:
    """Encode a result as the contents of an entry; return None if a part of it may not be kept on disk."""
    buffer = io.BytesIO()
    writer = _Writer(buffer, given)
    try:
        writer.dump(value)
    except (pickle.PicklingError, RecursionError):
        return None
    _note_entry(buffer.getvalue(), writer.kernels)
    return buffer.getvalue()


class Entry(NamedTuple):
    """The decoded content of an entry, so that a result of None differs from no entry."""

    value: Any


def decode(payload: bytes, given: Sequence[nodes.Kernel] = ()) -> Entry | None:
    """Decode the contents of an entry; return None for contents that `encode` does not produce."""
    reader = _Reader(io.BytesIO(payload), given)
    try:
        value = reader.load()
    except Exception:  # noqa: BLE001  # classes may raise anything when they are called with wrong arguments
        return None
    _note_entry(payload, reader.kernels)
    return Entry(value)


class _Writer(pickle.Pickler):
    """Pickles values of the allowed classes, each as a call of its class. Caches that nodes store are left out."""

    def __init__(self, buffer: io.BytesIO, given: Sequence[nodes.Kernel]) -> None:
        super().__init__(buffer, protocol=5)
        self._given = {kernel: place for place, kernel in enumerate(given)}
        self.kernels: list[nodes.Kernel] = []

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type):
            if value is Given or _is_kept(value):
                return NotImplemented
            raise pickle.PicklingError(f"the class {value.__qualname__} cannot be kept in the cache on disk")
        kind = type(value)
        if not _is_kept(kind):
            raise pickle.PicklingError(f"a {kind.__qualname__} cannot be kept in the cache on disk")
        if kind is nodes.Kernel and value in self._given:
            return Given, (self._given[value],)
        if kind is nodes.Kernel:
            self.kernels.append(value)
        if isinstance(value, enum.Enum):
            return kind, (value.value,)
        if isinstance(value, tuple):
            return kind, tuple(value)
        return kind, tuple([getattr(value, name) for name in _names_of_fields(kind)])


def _is_kept(kind: type) -> bool:
    return _find_class(kind.__module__, kind.__qualname__) is kind


class _Reader(pickle.Unpickler):
    """Unpickles what `_Writer` writes, and refuses everything else."""

    def __init__(self, buffer: io.BytesIO, given: Sequence[nodes.Kernel]) -> None:
        super().__init__(buffer)
        self._given = given
        self.kernels: list[nodes.Kernel] = []

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (Given.__module__, Given.__qualname__):
            return self._given.__getitem__
        if (module, name) == (nodes.Kernel.__module__, nodes.Kernel.__qualname__):
            return self._make_kernel
        known = _find_class(module, name)
        if known is None:
            raise pickle.UnpicklingError(f"{module}.{name} cannot be loaded from the cache on disk")
        return known

    def _make_kernel(self, *parts: Any) -> nodes.Kernel:
        self.kernels.append(nodes.Kernel(*parts))
        return self.kernels[-1]
