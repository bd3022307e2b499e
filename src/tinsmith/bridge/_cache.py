"""A cache of what calls have in common: plans, kinds of calls, routes."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

from .._config import config

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(dict[Key, Value]):
    """A dict that forgets the older half of what it holds when it is full: ragged data has ever new sizes.

    How many it holds is `TINSMITH_PLAN_CACHE`.
    """

    def keep(self, key: Key, value: Value) -> Value:
        """Put a value in, and return it."""
        if len(self) >= config().plan_cache:
            for old in list(islice(self, (len(self) + 1) // 2)):
                self.pop(old, None)  # another thread may have been here
        self[key] = value
        return value
