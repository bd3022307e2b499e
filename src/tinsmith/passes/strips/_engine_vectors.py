"""Which loops are printed in vectors of the engine, for compilers that make only short vectors of a loop, or none.

    for lane in 0 .. size:                       for lane in 0 .. 32 [vector_width = 16]:
        e = exp(t[lane])                   ->        e = exp(t[lane])
        t[lane] = t[lane] + e                        t[lane] = t[lane] + e

`codegen._vectors` prints such a loop as statements on two vectors of 16 numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...codegen import VECTOR_FUNCTIONS, find_sums
from ...ir import Operator, Type, nodes, number, walk
from ._parts import FUNCTIONS, POWER, is_vector

WIDTH = 16
"""Numbers of a vector: float32 of 512 bits. LLVM splits it into two or four vectors where the machine's are shorter."""
_KINDS = frozenset({Type.F32, Type.I32, Type.U1})
_WHOLE = frozenset({"neg", "not", "sqrt", "floor"})


def with_vectors(body: Sequence[nodes.Stmt], lane: nodes.Local, width: int, types: Mapping[str, Type]) -> nodes.Block:
    """Return statements whose loops over `lane`, of `width` lanes, are to be printed in vectors where they can be."""

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if not isinstance(one, nodes.For) or one.names != (lane.name,) or not _is_straight(one, types):
            return [one]
        return [replace(one, bounds=((number(0), number(width)),), vector_width=WIDTH)]

    return walk.rewrite(body, change)


def _is_straight(loop: nodes.For, types: Mapping[str, Type]) -> bool:
    """Return True if a loop only computes numbers, and stores them to elements that are a lane's own."""
    lane = nodes.Local(loop.names[0], Type.I32)
    known, sums, running = {lane.name}, find_sums(loop), set[str]()
    given = walk.find_defined(loop.body)
    for one in loop.body:
        match one:
            case nodes.Assign(name, nodes.Binary(_, nodes.Local(same), value)) if (
                name == same and name in sums.keys() - known
            ):
                # A sum of all lanes. What else an iteration hands on to the next one has no place in vectors.
                exprs, kind = [value], types[name]
                given = given - {name}
                running.add(name)
            case nodes.Assign(name, value):
                exprs, kind = [value], types[name]
            case nodes.Store(_, index, (), value) if index == (lane,):
                exprs, kind = [value], value.type
            case _:
                return False
        # A local of the loop that is read before it is assigned comes from the iteration before.
        # So does a running sum: only its last value is the same when lanes add up side by side.
        if kind not in _KINDS or (read := walk.locals_in(exprs)) & given - known or read & running:
            return False
        if not all(has_engine_vector(part) for part in walk.parts(*exprs)):
            return False
        known |= {*walk.find_assigned(one)}
    return True


def has_engine_vector(one: nodes.Expr, *, is_whole: bool = False) -> bool:
    """Return True if an operation is to be written for vectors of the engine; if `is_whole`, only one they take whole.

    LLVM 15 makes one operation again of what is written number by number, and LLVM 22 does not (Taichi 1.7.4,
    Quadrants 1.3.3: docs/about/decisions/vector-speed.md).
    """
    if one.type not in _KINDS:
        return False
    match one:
        case nodes.Select(type=Type.U1) | nodes.Binary(operator=Operator.POW):
            return False
        case nodes.Binary(operator) if operator == POWER:
            return False
        case nodes.Load(entry=entry) if entry:
            return False
        case nodes.Unary(operator) if operator in FUNCTIONS.values():
            return operator in VECTOR_FUNCTIONS and not is_whole
        case nodes.Unary(operator) if is_whole:
            return operator in _WHOLE
        case nodes.Binary(Operator.MIN | Operator.MAX, type=Type.I32) | nodes.Cast() if is_whole:
            return isinstance(one, nodes.Cast) and one.value.type == Type.U1
        case nodes.Cast():
            return True
        case _:
            return is_vector(one)
