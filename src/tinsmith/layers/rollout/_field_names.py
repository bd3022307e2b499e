"""Names of fields for users: `solver.particles.pos`, where a kernel has `self.particles.pos`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import Any

from ...engines import Engine, FieldKey
from ...frontend import is_plain_object
from ..fields import Launch, LayerField, uses_of_each

MOST_OBJECTS = 1000
"""Objects that are looked into for the owner of a kernel, from those that the function of a rollout names."""


def name_fields_for_user(
    forward: Callable[..., Any], launches: Sequence[Launch], fields: Sequence[LayerField]
) -> list[tuple[str, LayerField]]:
    """Return fields with their names, sorted: as kernels call them, with a kernel's object as `forward` calls it."""
    labels: dict[FieldKey, tuple[str, Launch]] = {}
    for launch in {one.kind: one for one in launches}.values():
        for label, use in uses_of_each([launch])[0].items():
            labels.setdefault(use.one.facts.key, (label, launch))
    named = []
    for one in fields:
        label, launch = labels.get(one.facts.key, (one.name, None))
        stage = None if launch is None else launch.launcher.stage
        own = stage.source.parameters[0] if stage is not None and stage.is_method else None
        if stage is not None and own is not None and label.startswith(f"{own}."):
            label = _find_owner(forward, stage.owner, stage.home) + label[len(own) :]
        named.append((label, one))
    return sorted(named, key=lambda pair: pair[0])


def _find_owner(forward: Callable[..., Any], owner: Any, engine: Engine) -> str:
    """Return the attributes by which a function reaches an object; the name of its class if that is not found."""
    waiting, seen = deque(_list_named_objects(forward)), set[int]()
    while waiting and len(seen) < MOST_OBJECTS:
        name, value = waiting.popleft()
        if value is owner:
            return name
        if id(value) not in seen and is_plain_object(value, engine):
            seen.add(id(value))
            waiting += [(f"{name}.{inner}", held) for inner, held in list(vars(value).items())]
    return type(owner).__name__


def _list_named_objects(forward: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a function names outside of itself: its object, and variables of closures and globals."""
    if isinstance(forward, MethodType):
        yield "self", forward.__self__
    function: Any = getattr(forward, "__func__", forward)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            # Not assigned yet.
            continue
    for name in code.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
