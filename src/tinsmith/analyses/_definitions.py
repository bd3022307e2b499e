"""Definitions and uses of locals: where each gets its values and is read, and what it is computed from."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeAlias

from ..ir import Type, nodes, walk

Definition: TypeAlias = tuple[str, nodes.Expr | None]
"""A local and what it is computed from; None where that is not an expression: a draw, an atomic's result, a loop."""

Path: TypeAlias = tuple[int, ...]
"""Loops around a statement, by number."""


def definitions(body: Sequence[nodes.Stmt]) -> Iterator[Definition]:
    """Yield every definition in statements: each place at which a local gets a value."""
    for one in walk.statements(body):
        yield from ((name, one.value if isinstance(one, nodes.Assign) else None) for name in walk.find_assigned(one))


def single_definitions(pairs: Iterable[Definition]) -> dict[str, nodes.Expr]:
    """Return the expressions of locals that have one definition, which does not read the local itself."""
    return {name: value for name, value in _single(pairs) if name not in walk.locals_in([value])}


def whole_definitions(pairs: Iterable[Definition]) -> dict[str, nodes.Expr]:
    """Return the single definitions of i32s that are not loads of elements, which may change."""
    # What is computed from an element stays, `k[i] + 1`: in an index, the load becomes an atom, and no atom but a
    # variable, a size or an argument is taken for the same number at two moments (`is_invariant`).
    whole = (one for one in _single(pairs) if one[1].type == Type.I32 and not isinstance(one[1], nodes.Load))
    return {name: value for name, value in whole if name not in walk.locals_in([value])}


def _single(pairs: Iterable[Definition]) -> Iterator[tuple[str, nodes.Expr]]:
    given: dict[str, nodes.Expr | None] = {}
    for name, value in pairs:
        # None for a second definition, too: which one holds where depends on the path.
        given[name] = None if name in given else value
    return ((name, value) for name, value in given.items() if value is not None)


def find_operands(names: Iterable[str], definitions: Mapping[str, nodes.Expr]) -> set[str]:
    """Return locals together with all that they are computed from."""
    operands, waiting = set[str](), {*names}
    while waiting:
        name = waiting.pop()
        if name not in operands:
            operands.add(name)
            waiting |= walk.locals_in([definitions[name]]) if name in definitions else set()
    return operands


class Expander:
    """Replaces each local by its definition, recursively: the result contains no local that has one.

    Each definition is expanded once, and is one object wherever it is used. Expanded again at each use, the places of a
    kernel for volume rendering took four fifths of the time in which its adjoint is generated.
    """

    def __init__(self, definitions: Mapping[str, nodes.Expr]) -> None:
        self._definitions = definitions
        self._expanded: dict[str, nodes.Expr] = {}

    def __call__(self, expr: nodes.Expr) -> nodes.Expr:
        if not isinstance(expr, nodes.Local):
            return walk.rebuild(expr, self)
        if expr.name not in self._expanded:
            value = self._definitions.get(expr.name)
            self._expanded[expr.name] = expr if value is None else self(value)
        return self._expanded[expr.name]


class PartialExpander:
    """Replaces locals by their definitions until only known ones are left; returns None if one has no definition.

    As with `Expander`, each definition is expanded once.
    """

    def __init__(self, known: Container[str], definitions: Mapping[str, nodes.Expr]) -> None:
        self._known = known
        self._definitions = definitions
        self._expanded: dict[str, nodes.Expr | None] = {}

    def __call__(self, expr: nodes.Expr) -> nodes.Expr | None:
        if isinstance(expr, nodes.Local):
            if expr.name in self._known:
                return expr
            if expr.name not in self._expanded:
                value = self._definitions.get(expr.name)
                self._expanded[expr.name] = None if value is None else self(value)
            return self._expanded[expr.name]
        parts = [self(one) for one in walk.operands(expr)]
        if any(one is None for one in parts):
            return None
        given = iter(parts)
        return walk.rebuild(expr, lambda _: next(given))  # type: ignore[arg-type,return-value]


def expand(expr: nodes.Expr, known: Container[str], definitions: Mapping[str, nodes.Expr]) -> nodes.Expr | None:
    """Return an expression in terms of known locals; None if that is not possible."""
    return PartialExpander(known, definitions)(expr)


class DefinitionsAndUses:
    """Where locals of statements are given values and read, by number in the text.

    Attributes:
        given: for each local, its definitions: their numbers, each with the loops inside which it holds.
        read: for each local, the loops around each statement that reads it.
    """

    def __init__(self, body: Sequence[nodes.Stmt]) -> None:
        self.given: dict[str, list[tuple[int, Path]]] = {}
        self.read: dict[str, list[Path]] = {}
        self._collect(body, (), count())

    def _collect(self, body: Sequence[nodes.Stmt], path: Path, numbers: Iterator[int]) -> None:
        for one in body:
            number = next(numbers)
            # A loop's variables have values inside the loop only.
            inside = (*path, number) if isinstance(one, nodes.For | nodes.While) else path
            for name in walk.find_assigned(one):
                self.given.setdefault(name, []).append((number, inside))
            for name in walk.locals_read(one):
                self.read.setdefault(name, []).append(path)
            for part in walk.bodies(one):
                self._collect(part, inside, numbers)

    def single(self, name: str) -> tuple[int, Path] | None:
        """Return the definition of a local that has exactly one."""
        return self.given[name][0] if len(self.given[name]) == 1 else None

    def is_fixed_from(self, number: int, name: str) -> bool:
        """Return True if a local gets no value at the statement of this number or later in the text."""
        return all(other < number for other, _ in self.given.get(name, ()))

    def is_copy(self, name: str, source: str) -> bool:
        """Return True if a local that is assigned another one has its value wherever it is read."""
        definition = self.single(name)
        if definition is None:
            return False
        number, path = definition
        # It is read only inside the same loops, hence in the same iteration, and its source gets no value after the
        # copy.
        is_inside = all(where[: len(path)] == path for where in self.read.get(name, ()))
        return is_inside and self.is_fixed_from(number, source)
