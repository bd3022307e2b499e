"""Coarse-grained parallel loops on a CPU: long iterations, each of which should run in a thread of its own.

Taichi 1.7.4 and Quadrants 1.3.3 give a thread 512 iterations at least, however long one takes and whatever `block_dim`
says: a loop over 16 tasks runs in one thread. So a task is the first of 512 iterations, and the others do nothing:

    for place in range(tasks * SHARE):
        for i in range(only_first(place, count)):
            ...  # of task place // SHARE
"""

from types import ModuleType
from typing import Any

SHARE = 512
"""The minimum number of iterations that an engine gives to one thread."""


def build_only_first(lang: ModuleType) -> Any:
    """Build the function `only_first(place, count)`: `count` in the first of every SHARE iterations, else 0."""

    @lang.func
    def only_first(place, count):
        return lang.select(place % SHARE == 0, count, 0)

    return only_first
