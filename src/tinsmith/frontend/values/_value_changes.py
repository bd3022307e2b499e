"""Describe which value differs between two fingerprints, and turn fingerprints into numbers."""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engines import COMPILING
from .._fingerprints import MISSING, PLAIN, Same, is_tensor

UNKNOWN = Same(MISSING)
"""The fingerprint of a missing value."""

# Numbers ------------------------------------------------------------------------------------------
_SERIALS: dict[int, tuple[weakref.ref[Any], int]] = {}
"""Live objects that are compared by identity, by address, each with a number that no other object ever gets."""
_COUNT = itertools.count()


def number_of(part: Any) -> int:
    """Return a number of 63 bits for a fingerprint. The chance that two fingerprints share one is about 10^-19.

    Python's own hash does not work: -1 and -2 have the same, and so do objects of which one is created at the address
    of another that was destroyed.
    """
    digest = hashlib.blake2b(digest_size=8)
    for piece in _pieces(part):
        # With its length, so that ("ab", "c") and ("a", "bc") differ.
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    # Without the last bit, the number fits into a signed integer of 64 bits.
    return int.from_bytes(digest.digest(), "little") >> 1


def _pieces(part: Any) -> Iterator[bytes]:
    """Yield the bytes that a fingerprint consists of."""
    if isinstance(part, tuple):
        yield b"(%d" % len(part)
        for one in part:
            yield from _pieces(one)
    elif isinstance(part, frozenset):
        yield b"{%d" % len(part)
        # The order of a set differs from process to process.
        yield from sorted(b"".join(_pieces(one)) for one in part)
    elif isinstance(part, Same):
        yield b"same %d" % _serial(part.value)
    elif isinstance(part, bytes):
        yield part
    else:
        yield (f"type {_serial(part)}" if isinstance(part, type) else repr(part)).encode()


def _serial(value: Any) -> int:
    address = id(value)
    known = _SERIALS.get(address)
    # Another object may have been created at the address.
    if known is not None and known[0]() is value:
        return known[1]
    with COMPILING:
        # Another thread may have given it one meanwhile.
        known = _SERIALS.get(address)
        if known is None or known[0]() is not value:
            try:
                reference = weakref.ref(value, lambda one: _forget(address, one))
            except TypeError:
                # An object that takes no weak reference: its address, among numbers that `_COUNT` never gives.
                return -address
            known = _SERIALS[address] = reference, next(_COUNT)
        return known[1]


def _forget(address: int, reference: weakref.ref[Any]) -> None:
    if address in _SERIALS and _SERIALS[address][0] is reference:
        del _SERIALS[address]


# Differences --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Change:
    """A value that differs from what it was.

    Attributes:
        name: the value, as the kernel names it.
        before, now: the old and new value, as text. `before` is "" if the old value was not kept.
    """

    name: str
    before: str
    now: str


def find_change(name: str, before: Any, now: Any) -> Change:
    """Return the first part in which two fingerprints of a value differ: an attribute, an item, an element."""
    for step, old, new in _members(before, now):
        if old != new:
            return find_change(f"{name}{step}", old, new)
    return Change(name, show(before), show(now))


def _members(before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of two fingerprints of one kind of value, with the step to each."""
    is_alike = isinstance(before, tuple) and isinstance(now, tuple) and len(before) == len(now) > 1
    if not is_alike or before[0] != now[0]:
        return
    kind = before[0]
    pairs = zip(before[1:], now[1:], strict=True)
    if isinstance(kind, Same):
        # An object; a function has no names in front of its parts.
        named = ((old, new) for old, new in pairs if _is_attribute(old) and _is_attribute(new) and old[0] == new[0])
        yield from ((f".{old[0]}", old[1], new[1]) for old, new in named)
    elif _is_array(before):
        if before[:3] == now[:3]:
            yield from _elements(before, now)
    elif isinstance(kind, type) and issubclass(kind, list | tuple):
        yield from ((f"[{place}]", old, new) for place, (old, new) in enumerate(pairs))
    elif isinstance(kind, type) and issubclass(kind, Mapping):
        yield from ((f"[{show(old[0])}]", old[1], new[1]) for old, new in pairs if old[0] == new[0])


def _is_array(part: tuple[Any, ...]) -> bool:
    kind = part[0]
    return isinstance(kind, type) and issubclass(kind, np.ndarray | np.generic)


def _is_attribute(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)


def _array(part: tuple[Any, ...]) -> np.ndarray:
    _, dtype, shape, memory = part
    return np.frombuffer(memory, np.dtype(dtype)).reshape(shape)


def _elements(before: tuple[Any, ...], now: tuple[Any, ...]) -> Iterator[tuple[str, Any, Any]]:
    for (place, old), (_, new) in zip(np.ndenumerate(_array(before)), np.ndenumerate(_array(now)), strict=True):
        # By text, nan equals nan.
        yield f"[{', '.join(map(str, place))}]" if place else "", repr(old.item()), repr(new.item())


def show(part: Any, depth: int = 0) -> str:
    """Return the value of a fingerprint as text, for a message."""
    if isinstance(part, Same):
        return "not there" if part.value is MISSING else _show_object(part.value)
    if isinstance(part, frozenset):
        return f"{{{', '.join(sorted(map(show, part)))}}}"
    if not isinstance(part, tuple) or len(part) < 2:
        return part if isinstance(part, str) else repr(part)
    kind = part[0]
    if _is_array(part):
        array = _array(part)
        return repr(array.item()) if array.ndim == 0 else f"{np.array2string(array, threshold=6):.60}"
    if isinstance(kind, Same):
        return show(kind)
    if kind is float:
        return str(part[1])
    if kind in PLAIN:
        return repr(part[1])
    if depth < 2 and isinstance(kind, type) and not issubclass(kind, Mapping):
        shown = ", ".join(show(one, depth + 1) for one in part[1:7])
        return f"[{shown}{', ...' if len(part) > 7 else ''}]"
    return f"a {kind.__name__}" if isinstance(kind, type) else repr(part)[:60]


def _show_object(value: Any) -> str:
    if is_tensor(value):
        return f"the tensor {' '.join(repr(value.detach()).split()):.60}"
    name = getattr(value, "__name__", None)
    return f"`{name}`" if isinstance(name, str) else f"a {type(value).__name__} at {id(value):#x}"
