"""Requirements on loops that are to run in lanes: how they end, what they cost, and how they can be rewritten."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from ....ir import Names, Operator, Type, integer, nodes, number, types, walk
from .._parts import FUNCTIONS, LIMITS, POWER, assign, is_vector, moves

_Loop: TypeAlias = nodes.For | nodes.While
_ANY_PLACE = nodes.Local("", Type.I32)
_FUNCTION, _POWER, _BRANCH = 10, 40, 6
"""Operations that a function counts as, a power, and a branch that lanes take the one way or the other."""


def find_data_dependent_loops(body: Sequence[nodes.Stmt], by_place: Collection[str] = ()) -> Iterator[_Loop]:
    """Yield the loops whose trip count depends on data: each `while`, and each `for` with a `break`.

    Of the `for` loops up to a number that is read from memory, yield those that run backward: they reverse a loop of
    another kernel, which stored its trip count. `by_place` are the variables of such loops that `with_places` rewrote.
    """
    read = set[str]()
    for one in walk.statements(body):
        if isinstance(one, nodes.Assign) and (walk.reads_memory(one.value) or walk.locals_in([one.value]) & read):
            read.add(one.name)
    for one in walk.statements(body):
        match one:
            case nodes.While():
                yield one
            case nodes.For() if has_break(one.body):
                yield one
            case nodes.For(names=(name,), bounds=((_, nodes.Local(end)),)) if end in read:
                if name in by_place or _write_by_place(one, _ANY_PLACE) is not None:
                    yield one
            case _:
                pass


def has_break(body: Sequence[nodes.Stmt]) -> bool:
    """Return True if statements may end the loop that they stand in."""
    return any(isinstance(one, nodes.Break) for one in walk.jumps_in(body))


def is_for_lanes(one: nodes.Expr) -> bool:
    """Return True if machines have a vector operation for an expression, which needs no second run by the library."""
    if isinstance(one, nodes.Cast) and types.is_float(one.value.type) and one.type == Type.I32:
        return True
    return is_vector(one) and not (isinstance(one, nodes.Unary) and FUNCTIONS.get(one.operator) in LIMITS)


def may_trap(expr: nodes.Expr) -> bool:
    """Return True if an operation ends the process on some numbers, which inactive lanes may have."""
    return (
        isinstance(expr, nodes.Binary)
        and expr.operator in (Operator.FLOOR_DIV, Operator.MOD)
        and not types.is_float(expr.type)
    )


def operations(body: Sequence[nodes.Stmt]) -> int:
    """Return the cost of statements, in operations of their text: a loop inside is counted once."""
    cost = 0
    for one in walk.statements(body):
        if isinstance(one, nodes.If) and not any(walk.jumps_in(one.body)):
            cost += _BRANCH
        for part in walk.parts(*walk.expressions(one)):
            is_operation = isinstance(part, nodes.Unary | nodes.Binary | nodes.Select | nodes.Cast)
            is_function = isinstance(part, nodes.Unary) and moves(part)
            is_power = isinstance(part, nodes.Binary) and part.operator == POWER
            cost += _FUNCTION if is_function else _POWER if is_power else is_operation
    return cost


def with_named_bounds(body: Sequence[nodes.Stmt], names: Names) -> nodes.Block:
    """Return statements in which bounds of inner loops that are read from memory are locals.

    `Sharing` finds by these locals on what lanes of a block are to agree.
    """

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if not isinstance(one, nodes.For) or not any(map(walk.reads_memory, walk.expressions(one))):
            return (one,)
        given: list[nodes.Stmt] = []

        def name(wish: str, value: nodes.Expr) -> nodes.Expr:
            local = names.local(wish, Type.I32)
            given.append(replace(assign(local, value), line=one.line))
            return local

        bounds = tuple([(name("begin", first), name("end", end)) for first, end in one.bounds])
        return (*given, replace(one, bounds=bounds))

    return walk.rewrite(body, change)


def with_places(body: Sequence[nodes.Stmt], names: Names) -> tuple[nodes.Block, set[str]]:
    """Rewrite loops that run backwards by the place `end - 1 - back` instead of `back`. Return their new names too.

    Lanes for which such a loop has different lengths begin apart, but are at one place together: the passes of a
    gradient go back over what lanes went through side by side.
    """
    by_place: set[str] = set()

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        place = names.local("at", Type.I32)
        changed = _write_by_place(one, place) if isinstance(one, nodes.For) else None
        if changed is None:
            return (one,)
        by_place.add(place.name)
        return (changed,)

    return walk.rewrite(body, change), by_place


def _write_by_place(loop: nodes.For, place: nodes.Local) -> nodes.For | None:
    """Return a loop that runs backwards by its place; None for another loop, or one that machine vectors cannot run."""
    if len(loop.names) != 1 or has_break(loop.body):
        return None
    begin, end = loop.bounds[0]
    back = nodes.Local(loop.names[0], Type.I32)
    is_steady = not walk.locals_in([end]) & walk.find_defined(loop.body) and not walk.reads_memory(end)
    if begin != number(0) or not is_steady or not all(map(is_for_lanes, walk.parts_in(loop.body))):
        return None
    counted = integer(Operator.SUB, integer(Operator.SUB, end, number(1)), back)

    def rename(expr: nodes.Expr) -> nodes.Expr:
        return place if expr == counted else walk.rebuild(expr, rename)

    inner = tuple([walk.transform(part, rename) for part in loop.body])
    # If anything else uses the count itself, the place alone does not do.
    is_by_place = inner != loop.body and back.name not in walk.find_mentioned(inner)
    return replace(loop, names=(place.name,), body=inner) if is_by_place else None
