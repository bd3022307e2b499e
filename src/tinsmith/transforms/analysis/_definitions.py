"""Definitions and uses of locals: where each gets its values, and what stands for it where it gets one only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    return {name: value for name, value in _single(found) if name not in walk.locals_in([value])}


def whole_definitions(found: Iterable[Definition]) -> dict[str, nodes.Expr]:
    """Those of integers, and not from memory: the same wherever they are named."""
    whole = (one for one in _single(found) if one[1].type == "i32" and not isinstance(one[1], nodes.Load))
    return {name: value for name, value in whole if name not in walk.locals_in([value])}


def _single(found: Iterable[Definition]) -> Iterator[tuple[str, nodes.Expr]]:
    given: dict[str, nodes.Expr | None] = {}
    for name, value in found:
        given[name] = None if name in given else value
    return ((name, value) for name, value in given.items() if value is not None)


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


def expanded(expr: nodes.Expr, known: set[str], definitions: Mapping[str, nodes.Expr]) -> nodes.Expr | None:
    """An expression in terms of locals that are known; None where that cannot be."""
    if isinstance(expr, nodes.Local):
        if expr.name in known:
            return expr
        if expr.name not in definitions:
            return None
        return expanded(definitions[expr.name], known, definitions)
    parts = [expanded(one, known, definitions) for one in walk.operands(expr)]
    if any(one is None for one in parts):
        return None
    given = iter(parts)
    return walk.rebuilt(expr, lambda _: next(given))  # type: ignore[arg-type,return-value]
