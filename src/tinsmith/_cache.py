"""Caches: bounded tables whose entries can be computed again. `empty_caches` empties all, `measure_caches` counts
them.

A table whose entries cannot be computed again is not a cache: use a `BoundedDict` if only its newest entries matter,
else a dict. docs/about/locks.md says which lock guards which table.
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
    """A dict that drops the older half of its entries when it is full, for keys such as the ever new sizes of ragged
    data.

    Reading is a dict's own: no entry moves when it is read. The capacity is `most`, or TINSMITH_PLAN_CACHE if that is
    None.
    """

    __slots__ = ("__weakref__", "most")

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most

    def keep(self, key: Key, value: Value) -> Value:
        """Store a value under a key, and return the value."""
        if len(self) >= (self.most or config().plan_cache):
            # `list` of a dict's keys is atomic while other threads add keys. They may remove keys before the loop does.
            for old in list(self.keys())[: (len(self) + 1) // 2]:
                self.pop(old, None)
        self[key] = value
        return value


class Cache(BoundedDict[Key, Value]):
    """A bounded dict of values that can be computed again. `ts.clear_caches()` empties it.

    Read it with `get`: another thread may empty it between `key in cache` and `cache[key]`.
    """

    __slots__ = ("name",)

    def __init__(self, name: str, most: int | None = None) -> None:
        """Create an empty cache. `name` says what the entries are; caches of one name are counted together."""
        super().__init__(most)
        self.name = name
        _CACHES[next(_NUMBERS)] = self

    def __reduce__(self) -> Any:
        """Copy or pickle as an empty cache, so that each is known to `empty_caches`."""
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
    """The size of all caches of one name.

    Attributes:
        name: what the entries are.
        caches: the number of caches; most belong to one op each.
        entries: the number of entries in all of them.
        most: the capacity of each.
    """

    name: str
    caches: int
    entries: int
    most: int


def measure_caches() -> list[CacheSize]:
    """Return the sizes of all caches, sorted by name."""
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
    """Clear all caches."""
    for cache in _list_caches():
        cache.clear()
    for _, function in _FUNCTIONS:
        function.cache_clear()


def _list_caches() -> list[Cache[Any, Any]]:
    # `valuerefs` is atomic: other threads create and free caches meanwhile.
    references = _CACHES.valuerefs()
    return [cache for reference in references if (cache := reference()) is not None]


DIGITS = 12
"""The number of hexadecimal digits of a digest. Two kernels have equal digests by accident once in 10^14."""


def digest_of(*parts: str) -> str:
    """Return the digest of some texts in order, by which processes recognize equal content.

    It uses blake2b, which is Python's own code. SHA-256 is OpenSSL's, which waits forever in a forked process if
    another thread was in it at the fork: Taichi 1.7.4 asks for its newest version over TLS, in a thread, when it is
    imported.
    """
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=DIGITS // 2).hexdigest()
