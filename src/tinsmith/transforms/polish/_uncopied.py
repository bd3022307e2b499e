"""Copies left out: what has one value by two names goes by the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ...source.ir import nodes, walk

Block = tuple[nodes.Stmt, ...]
Path = tuple[int, ...]
"""Loops around a statement, by number."""


def uncopied(body: Sequence[nodes.Stmt], kinds: Mapping[str, str]) -> Block:
    """Statements without `a = b`, where `b` keeps its value as long as `a` is asked for.

    That is so where `a` gets a value nowhere else, `b` nowhere after it in the text, and both live in one iteration.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    text = Text(body)
    values: dict[str, nodes.Expr] = {}
    for one in walk.statements(body):
        if not isinstance(one, nodes.Assign) or not isinstance(one.value, nodes.Local):
            continue
        source = values.get(one.value.name, one.value)
        assert isinstance(source, nodes.Local)
        if kinds[one.name] == source.type and text.is_copy(one.name, source.name):
            values[one.name] = source
    return tuple(_without(body, values))


@dataclass
class Text:
    """Where locals are given values and read, by number in the text."""

    body: Sequence[nodes.Stmt]
    given: dict[str, list[tuple[int, Path]]] = field(default_factory=dict)
    read: dict[str, list[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, one, path in _placed(self.body, (), count()):
            for name in walk.assigned(one):
                inside = (*path, number) if isinstance(one, nodes.For) else path
                self.given.setdefault(name, []).append((number, inside))
            for name in walk.locals_in(walk.expressions(one)):
                self.read.setdefault(name, []).append(path)

    def is_copy(self, name: str, source: str) -> bool:
        places = self.given[name]
        if len(places) != 1:
            return False
        ((number, path),) = places
        stays = all(other < number for other, _ in self.given.get(source, ()))
        return stays and all(where[: len(path)] == path for where in self.read.get(name, ()))


def _placed(body: Sequence[nodes.Stmt], path: Path, numbers: Iterator[int]) -> Iterator[tuple[int, nodes.Stmt, Path]]:
    for one in body:
        number = next(numbers)
        yield number, one, path
        inside = (*path, number) if isinstance(one, nodes.For | nodes.While) else path
        for part in walk.bodies(one):
            yield from _placed(part, inside, numbers)


def _without(body: Sequence[nodes.Stmt], values: Mapping[str, nodes.Expr]) -> Iterator[nodes.Stmt]:
    for one in body:
        if isinstance(one, nodes.Assign) and one.name in values:
            continue
        one = walk.with_expressions(one, lambda expr: walk.substituted(expr, values))
        match one:
            case nodes.If():
                then, other = (tuple(_without(part, values)) for part in (one.body, one.orelse))
                yield replace(one, body=then, orelse=other)
            case nodes.For() | nodes.While():
                yield replace(one, body=tuple(_without(one.body, values)))
            case _:
                yield one
