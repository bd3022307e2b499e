"""Additions to one element, combined: three plain ones load and store it three times, three atomic ones wait thrice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ...source.ir import nodes, walk
from .._algebra import minus, negate, plus

Element = tuple[str, tuple[nodes.Expr, ...], tuple[int, ...], bool]
"""An array, an index, an entry, and whether the addition is atomic."""


@dataclass(frozen=True)
class _Addition:
    element: Element
    value: nodes.Expr
    place: int


def combine_additions(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> nodes.Block:
    """Statements in which what is added to an element is added once, where the last of the additions stands.

    Only the order of floating-point additions changes.

    Args:
        body: the statements.
        arrays: those to which this is done.
    """
    statements: list[nodes.Stmt | None] = []
    waiting: dict[Element, _Addition] = {}
    for one in body:
        element = _element(one)
        if element is None or element[0] not in arrays:
            one = walk.with_bodies(one, lambda inner: combine_additions(inner, arrays))
            _forget(waiting, one)
        elif (value := find_added_value(one)) is not None:
            # Additions to other elements of the array may come before or after this one.
            before = waiting.get(element)
            if before is not None:
                statements[before.place] = None
                value = _sum(before.value, value)
                one = _with_value(one, value)
            waiting[element] = _Addition(element, value, len(statements))
        statements.append(one)
    return tuple(one for one in statements if one is not None)


def find_added_value(one: nodes.Stmt) -> nodes.Expr | None:
    """What a statement adds to the element that it changes; None if it does something else."""
    match one:
        case nodes.Atomic("add", value=value, result=None):
            return value
        case nodes.Store(array, index, entry, nodes.Binary("+" | "-" as sign, nodes.Load(other, at, part), value)):
            if (array, index, entry) == (other, at, part):
                return negate(value) if sign == "-" else value
    return None


def write_out_addition(one: nodes.Stmt) -> nodes.Stmt:
    """An atomic sum or difference as an ordinary one, for code that runs in order; any other statement as it is."""
    match one:
        case nodes.Atomic("add" | "sub" as operator, array, index, entry, value, None):
            old = nodes.Load(array, index, entry, value.type)
            new = plus(old, value) if operator == "add" else minus(old, value)
            return nodes.Store(array, index, entry, new, one.line)
        case _:
            return one


def _element(one: nodes.Stmt) -> Element | None:
    """The element that a statement adds to; None if it does something else."""
    value = find_added_value(one)
    if value is None or not isinstance(one, nodes.Store | nodes.Atomic):
        return None
    # What is added, and where, must still be known at the last addition.
    is_known = not any(map(walk.reads_memory, (*one.index, value)))
    return (one.array, one.index, one.entry, isinstance(one, nodes.Atomic)) if is_known else None


def _sum(first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    match first:
        case nodes.Unary("neg", value, kind) if value.type == kind:
            return minus(second, value)
        case _:
            return plus(first, second)


def _with_value(one: nodes.Stmt, value: nodes.Expr) -> nodes.Stmt:
    match one:
        case nodes.Atomic():
            return replace(one, value=value)
        case nodes.Store(value=nodes.Binary(_, old, _)):
            return replace(one, value=plus(old, value))
        case _:
            raise AssertionError(one)


def _forget(waiting: dict[Element, _Addition], one: nodes.Stmt) -> None:
    """Leave additions where they are that may not come after a statement."""
    if not waiting:
        return
    inside = list(walk.statements([one]))
    changed = walk.find_defined([one])
    touched: set[str] = set()
    for part in inside:
        if _element(part) is None:  # an addition, to whichever element, may come before those that wait
            parts = walk.parts(*walk.expressions(part))
            touched |= {one.array for one in parts if isinstance(one, nodes.Load)}
            touched |= {part.array} if isinstance(part, nodes.Store | nodes.Atomic) else set()
    is_border = any(isinstance(part, nodes.Break | nodes.Continue | nodes.Barrier) for part in inside)
    for element, addition in list(waiting.items()):
        array, index, _, _ = element
        if is_border or array in touched or not changed.isdisjoint(walk.locals_in([*index, addition.value])):
            del waiting[element]
