"""The sum of a vector's components."""

from types import ModuleType
from typing import Any


def build_total(lang: ModuleType, lanes: int, dtype: str) -> Any:
    """Build the function that sums a vector's components, by halves, so that each step is one vector instruction."""
    if lanes == 1:

        @lang.func
        def first(v):
            return v[0]

        return first
    rest, half = build_total(lang, lanes // 2, dtype), lanes // 2
    vector = lang.types.vector(half, getattr(lang, dtype))

    @lang.func
    def total(v):
        halves = vector(0.0)
        for k in lang.static(range(half)):
            halves[k] = v[k] + v[k + half]
        return rest(halves)

    return total
