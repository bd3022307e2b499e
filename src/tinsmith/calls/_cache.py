"""A cache of objects that calls share: plans, kinds of calls, routes."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

from .._config import config

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(dict[Key, Value]):
    """A dict that drops its older half when it is full, since ragged data always brings new sizes.

    `TINSMITH_PLAN_CACHE` is its capacity.
    """

    def keep(self, key: Key, value: Value) -> Value:
        """Put a value in, and return it."""
        if len(self) >= config().plan_cache:
            for old in list(islice(self, (len(self) + 1) // 2)):
                # Another thread may have removed it.
                self.pop(old, None)
        self[key] = value
        return value
