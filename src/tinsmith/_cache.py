"""Caches: bounded tables whose entries can be computed again. `empty_caches` empties all, `measure_caches` counts them.

What must not be forgotten is no cache: it is kept in a `BoundedDict` if only its newest entries matter, else in a dict.
Which lock guards which table is stated in docs/about/locks.md.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from ._config import config

Key = TypeVar("Key")
Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")


class BoundedDict(dict[Key, Value]):
    """A dict that drops its older half when it is full, since ragged data always brings new sizes.

    Reading is a dict's own: no entry moves when it is read. `TINSMITH_PLAN_CACHE` is the capacity, unless there is a
    `most` of its own.
    """

    __slots__ = ("__weakref__", "most")

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most

    def keep(self, key: Key, value: Value) -> Value:
        """Put a value in, and return it."""
        if len(self) >= (self.most or config().plan_cache):
            # `list` of a dict's keys is one step, though other threads add keys meanwhile; they may have removed some.
            for old in list(self.keys())[: (len(self) + 1) // 2]:
                self.pop(old, None)
        self[key] = value
        return value


class Cache(BoundedDict[Key, Value]):
    """A bounded dict of values that can be computed again, which `ts.clear_caches()` empties.

    Read it by `get`: another thread may empty it between `key in cache` and `cache[key]`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str, most: int | None = None) -> None:
        """`name` says what the entries are; caches of one name are counted together."""
        super().__init__(most)
        self.name = name
        _CACHES[next(_NUMBERS)] = self

    def __reduce__(self) -> Any:
        """Copies are empty, so that each is known to `empty_caches`."""
        return type(self), (self.name, self.most)


def cache_results(name: str, most: int) -> Callable[[Callable[Arguments, Value]], Callable[Arguments, Value]]:
    """Decorate a function to remember its last `most` results, which `ts.clear_caches()` forgets."""

    def decorate(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
        remembering: Any = functools.lru_cache(maxsize=most)(function)
        _FUNCTIONS.append((name, remembering))
        return cast("Callable[Arguments, Value]", remembering)

    return decorate


_CACHES: weakref.WeakValueDictionary[int, Cache[Any, Any]] = weakref.WeakValueDictionary()
"""All caches that exist, by a number."""
_NUMBERS = itertools.count()
_FUNCTIONS: list[tuple[str, Any]] = []
"""The functions that `cache_results` decorates, each with the name of its cache."""


class CacheSize(NamedTuple):
    """How large the caches of one name are.

    Attributes:
        name: what the entries are.
        caches: how many caches exist; most belong to one op each.
        entries: how many entries they have together.
        most: how many entries one of them has at most.
    """

    name: str
    caches: int
    entries: int
    most: int


def measure_caches() -> list[CacheSize]:
    """Return the sizes of all caches, by name."""
    sizes: dict[str, CacheSize] = {}

    def add(name: str, entries: int, most: int) -> None:
        known = sizes.get(name, CacheSize(name, 0, 0, most))
        sizes[name] = CacheSize(name, known.caches + 1, known.entries + entries, most)

    for cache in _list_caches():
        add(cache.name, len(cache), cache.most or config().plan_cache)
    for name, function in _FUNCTIONS:
        info = function.cache_info()
        add(name, info.currsize, info.maxsize)
    return sorted(sizes.values())


def empty_caches() -> None:
    """Empty all caches."""
    for cache in _list_caches():
        cache.clear()
    for _, function in _FUNCTIONS:
        function.cache_clear()


def _list_caches() -> list[Cache[Any, Any]]:
    # In one step: other threads make caches, and drop some.
    references = _CACHES.valuerefs()
    return [cache for reference in references if (cache := reference()) is not None]


DIGITS = 12
"""Hexadecimal digits of a digest: two kernels have the same ones by accident once in 10^14."""


def digest_of(*parts: str) -> str:
    """Return a digest of texts, in order, by which processes recognize the same content.

    By blake2b, which is Python's own code. SHA-256 is OpenSSL's, which waits forever in a forked process if another
    thread was in it at the fork: Taichi 1.7.4 asks for its newest version over TLS, in a thread, when it is imported.
    """
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=DIGITS // 2).hexdigest()
