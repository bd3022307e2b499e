"""Carried: locals that an iteration of a loop hands to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..source import called, root, walk
from ._walk import Loop, names_in, pairs


@lru_cache(maxsize=64)
def carried(loop: Loop) -> dict[str, ast.stmt]:
    """Locals that a loop's body changes, and reads before it has given them a value: where they are changed first."""
    exposed = _flow(loop.body).exposed
    changed: dict[str, ast.stmt] = {}
    for one in _statements(loop.body):
        for target, _ in pairs(one):
            if root(target) in exposed:
                changed.setdefault(root(target), one)
    return changed


class _Flow(NamedTuple):
    """What a block reads before it gives it a value, and what it gives a value on every way."""

    exposed: frozenset[str]
    made: frozenset[str]


def _flow(body: Sequence[ast.stmt]) -> _Flow:
    exposed: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    for one in body:
        found = _of_statement(one)
        exposed |= found.exposed - made
        made |= found.made
    return _Flow(exposed, made)


def _of_statement(one: ast.stmt) -> _Flow:
    match one:
        case ast.If(test=test):
            then, other = _flow(one.body), _flow(one.orelse)
            made = then.made if called(test) == "static" else then.made & other.made
            return _Flow(names_in(test) | then.exposed | other.exposed, made)
        case ast.For(target=target, iter=iterator):
            return _Flow(names_in(iterator) | (_flow(one.body).exposed - names_in(target)), frozenset())
        case ast.While(test=test):
            return _Flow(names_in(test) | _flow(one.body).exposed, frozenset())
    given = pairs(one)
    if not given:
        return _of_tuple(one)
    read = frozenset().union(*(names_in(value) for _, value in given))
    parts = [target for target, _ in given if not isinstance(target, ast.Name)]
    read |= frozenset().union(*map(names_in, parts)) if parts else frozenset()
    return _Flow(read, frozenset(target.id for target, _ in given if isinstance(target, ast.Name)))


def _of_tuple(one: ast.stmt) -> _Flow:
    """`a, b = f(x)`, and what is no assignment."""
    names = [node for node in walk(one) if isinstance(node, ast.Name)]
    made = frozenset(node.id for node in names if isinstance(node.ctx, ast.Store))
    return _Flow(frozenset(node.id for node in names) - made, made)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        yield one
        for part in ("body", "orelse"):
            yield from _statements(getattr(one, part, []))
