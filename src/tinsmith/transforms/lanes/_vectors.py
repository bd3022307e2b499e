"""Loops over lanes that are printed in vectors of the engine, for compilers that make short vectors of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...source.ir import nodes, walk
from .._strip_parts import FUNCTIONS, POWER, is_vector, number

WIDTH = 16
"""Numbers of a vector: float32 of 512 bits, of which LLVM makes two or four vectors where the machine's are shorter."""
_KINDS = frozenset({"f32", "i32", "u1"})


def with_vectors(body: Sequence[nodes.Stmt], lane: nodes.Local, width: int, types: Mapping[str, str]) -> nodes.Block:
    """Statements in which loops by `lane`, of a number of lanes that is known, are in vectors where they can be."""

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if not isinstance(one, nodes.For) or one.names != (lane.name,) or not _is_straight(one, types):
            return [one]
        return [replace(one, bounds=((number(0), number(width)),), vector_width=WIDTH)]

    return walk.rewrite(body, change)


def _is_straight(loop: nodes.For, types: Mapping[str, str]) -> bool:
    """Whether a loop only computes numbers, and stores them to elements of local arrays that are a lane's own."""
    lane = nodes.Local(loop.names[0], "i32")
    known = {lane.name}
    given = walk.find_defined(loop.body)
    for one in loop.body:
        match one:
            case nodes.Assign(name, nodes.Binary(_, nodes.Local(same), value)) if name == same and name not in known:
                # A sum of all lanes. What else an iteration hands on to the next one has no place in vectors.
                exprs, kind = [value], types[name]
                given = given - {name}
            case nodes.Assign(name, value):
                exprs, kind = [value], types[name]
            case nodes.Store(_, index, (), value) if index == (lane,):
                exprs, kind = [value], value.type
            case _:
                return False
        if kind not in _KINDS or (walk.locals_in(exprs) & given) - known:
            return False
        if not all(_has_vectors(part) for part in walk.parts(*exprs)):
            return False
        known |= {*walk.find_assigned(one)}
    return True


def _has_vectors(one: nodes.Expr) -> bool:
    match one:
        case nodes.Select(type="u1") | nodes.Binary(operator="pow"):
            return False
        case nodes.Binary(operator) if operator == POWER:
            return False
        case nodes.Load(entry=entry) if entry:
            return False
        case nodes.Unary(operator) if operator in FUNCTIONS.values():
            return True
        case nodes.Cast():
            return one.type in _KINDS
        case _:
            return one.type in _KINDS and is_vector(one)
