"""Describe which value differs between two fingerprints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._fingerprints import MISSING, PLAIN, Same, is_tensor

UNKNOWN = Same(MISSING)
"""The fingerprint of a missing value."""


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


def find_changed_value(before: tuple[Any, ...] | None, now: tuple[Any, ...]) -> Change:
    """Return the first value in which two different fingerprints of one kernel differ.

    If `before` is None, it was not kept: then the change names all current values.
    """
    if before is None:
        return Change("`, `".join(now[0]), "", ", ".join(map(show, now[1:])))
    if before and now and before[0] == now[0]:
        pairs = zip(now[0], before[1:], now[1:], strict=True)
        return next(find_change(name, old, new) for name, old, new in pairs if old != new)
    olds, news = (dict(zip(one[0], one[1:], strict=True)) if one else {} for one in (before, now))
    # Here the names differ too. One that only one of the two has counts as a change to or from `UNKNOWN`.
    name = next(name for name in (*olds, *news) if olds.get(name) != news.get(name))
    return find_change(name, olds.get(name, UNKNOWN), news.get(name, UNKNOWN))
