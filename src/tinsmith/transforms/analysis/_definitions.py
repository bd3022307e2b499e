"""Definitions and uses of locals: where each gets its values, and what stands for it where it gets one only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ...source.ir import nodes, walk

Definition: TypeAlias = tuple[str, nodes.Expr | None]
"""A local and what it is worked out from; None where that is no expression: a draw, an atomic's result, a loop."""


def definitions(body: Sequence[nodes.Stmt]) -> Iterator[Definition]:
    """Every place in statements at which a local gets a value."""
    for one in walk.statements(body):
        yield from ((name, one.value if isinstance(one, nodes.Assign) else None) for name in walk.assigned(one))


def single_definitions(found: Iterable[Definition]) -> dict[str, nodes.Expr]:
    """What locals are worked out from that have one definition, which does not read the local itself."""
    given: dict[str, list[nodes.Expr | None]] = {}
    for name, value in found:
        given.setdefault(name, []).append(value)
    single = ((name, values[0]) for name, values in given.items() if len(values) == 1)
    return {name: value for name, value in single if value is not None and name not in walk.locals_in([value])}


def whole_definitions(found: Iterable[Definition]) -> dict[str, nodes.Expr]:
    """Those of integers, and not from memory: the same wherever they are named."""
    single = single_definitions(found)
    return {name: one for name, one in single.items() if one.type == "i32" and not isinstance(one, nodes.Load)}


def defined(body: Sequence[nodes.Stmt]) -> set[str]:
    """Locals that statements give a value."""
    return {name for one in walk.statements(body) for name in walk.assigned(one)}


def mentioned(body: Sequence[nodes.Stmt]) -> set[str]:
    """Locals that statements give a value or read."""
    found = set[str]()
    for one in walk.statements(body):
        found.update(walk.assigned(one))
        found |= walk.locals_in(walk.expressions(one))
    return found
