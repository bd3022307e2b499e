"""Examples: which ops of a module have some, also where ops are methods."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ..operation import Op


def ops_with_examples(namespace: Mapping[str, Any]) -> list[Op]:
    """The ops of a module that have examples: `ops_in`."""
    return [op for op in ops_in(namespace) if op.examples]


def ops_in(namespace: Mapping[str, Any]) -> list[Op]:
    """The ops of a module, each once: at its top, and those of objects at its top.

    Of a class that the module defines and has no object of, the ops are bound to nothing, and cannot run.
    """
    values = list(namespace.values())
    ops = [op for value in values for op in ops_of(value)]
    for value in values:
        is_own = inspect.isclass(value) and value.__module__ == namespace.get("__name__")
        if is_own and not any(issubclass(type(one), value) for one in values):
            ops += [op for op in vars(value).values() if issubclass(type(op), Op)]
    return [op for place, op in enumerate(ops) if not any(op is one for one in ops[:place])]


def ops_of(value: Any) -> Iterator[Op]:
    """An op itself, or the ops of a data-oriented object. Asked of the type: an object may answer anything itself."""
    if issubclass(type(value), Op):
        yield value
        return
    for owner in type(value).__mro__:
        for name, member in vars(owner).items():
            if issubclass(type(member), Op):
                yield getattr(value, name)
