"""Examples: finds the ops of a module and those that have examples, including ops that are methods."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ..operation import Op


def find_ops_in(namespace: Mapping[str, Any]) -> list[Op]:
    """Return the ops in a module's namespace and those of the objects in it, each once.

    If the module defines a class and has no object of it, the ops of the class are included. They are not bound to an
    object, and cannot run.
    """
    values = list(namespace.values())
    ops = [op for value in values for op in find_ops_of(value)]
    for value in values:
        is_own = inspect.isclass(value) and value.__module__ == namespace.get("__name__")
        if is_own and not any(issubclass(type(one), value) for one in values):
            ops += [op for op in vars(value).values() if issubclass(type(op), Op)]
    return [op for place, op in enumerate(ops) if not any(op is one for one in ops[:place])]


def find_ops_of(value: Any) -> Iterator[Op]:
    """Yield an op itself, or the ops of a data-oriented object.

    Members are looked up in the type, since an object may answer to any attribute.
    """
    if issubclass(type(value), Op):
        yield value
        return
    for owner in type(value).__mro__:
        for name, member in vars(owner).items():
            if issubclass(type(member), Op):
                yield getattr(value, name)
