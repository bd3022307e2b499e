"""Elementwise: a loop of the top level that only works out numbers and stores them, in strips of 64 iterations.

    for i in range(n):                        for strip in range((n + 63) >> 6):
        z[i] = 2.5 * x[i] + y[i]                  first = strip << 6; size = min(64, n - first)
                                       ->         for lane in range(size):
                                                      i = first + lane; ahead[lane] = 2.5 * x[i] + y[i]
                                                  for lane in range(size):
                                                      z[first + lane] = ahead[lane]

Strips run in the place of iterations, in parallel where those did. The first of the inner loops stores to memory that
nothing else can point to, so compilers vectorise it (docs/about/decisions/vector-speed.md); the second copies. Of a
loop over several names the last one is in strips: a strip divides by the sizes of the others once, where each iteration
did. There a short strip may be all of a row, and runs as it was.

A strip reads all that it needs before it stores anything. So an array that the loop changes must be read at the very
place that the same iteration stores to: then every order of iterations gives the same result. What an iteration reads
after it stored is the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..source.ir import nodes, walk
from ._names import Names
from ._strip_parts import (
    FUNCTIONS,
    KINDS,
    LENGTH,
    SHORTEST,
    assign,
    bounds_of_strip,
    integer,
    is_vector,
    moves,
    number,
    run_lanes,
    strips_between,
    within_limits,
)
from .analysis import affine

Index = tuple[nodes.Expr, ...]


@dataclass(frozen=True)
class _Access:
    """Statements that touch arrays, each with what it reads and where it stores, in the loop's own names."""

    statement: nodes.Stmt
    reads: tuple[tuple[str, Index], ...]
    place: Index | None


def strip_elementwise(task: nodes.Stmt, kernel: nodes.Kernel, names: Names) -> nodes.Stmt | None:
    """A statement of the top level in strips; None where it is not such a loop, or a machine has no vectors for it."""
    if not isinstance(task, nodes.For) or not _is_candidate(task, kernel):
        return None
    accesses = _accesses(task)
    if not (
        _is_side_by_side(task, accesses) and _reads_its_own(accesses) and all(map(is_vector, walk.parts_in(task.body)))
    ):
        return None
    return _strips(task, accesses, kernel, names)


def _is_candidate(loop: nodes.For, kernel: nodes.Kernel) -> bool:
    """Whether a loop has no branches, and works on plain arrays of a launch."""
    is_plain = all(isinstance(one, nodes.Assign | nodes.Store) for one in loop.body)
    bounds = [bound for pair in loop.bounds for bound in pair]
    match loop.bounds[-1]:
        case (nodes.Const(first), nodes.Const(end)) if end - first < SHORTEST:
            return False
        case _:
            pass
    if not (is_plain and not loop.block_size and all(map(walk.is_invariant, bounds))):
        return False
    arrays = [kernel.arrays[name] for name in walk.find_touched(loop.body)]
    given = walk.find_defined(loop.body)
    # A local of the top level goes on from one iteration of a serial loop to the next.
    carried = given & walk.find_defined([one for one in kernel.body if not isinstance(one, nodes.For)])
    return (
        any(isinstance(one, nodes.Store) for one in loop.body)
        and not carried
        and not given & set(loop.names)
        and all(one.type in KINDS and not one.label and not one.element for one in arrays)
        and not any(one.is_of_blocks or one.name in kernel.cells for one in arrays)
    )


def _accesses(loop: nodes.For) -> list[_Access]:
    accesses: list[_Access] = []
    known: dict[str, nodes.Expr] = {}  # of whole numbers alone, of which indices are made
    for one in loop.body:
        loads = [(load.array, load.index) for load in walk.loads([one])]
        reads = tuple((array, tuple(walk.substitute(part, known) for part in index)) for array, index in loads)
        place = tuple(walk.substitute(part, known) for part in one.index) if isinstance(one, nodes.Store) else None
        accesses.append(_Access(one, reads, place))
        if isinstance(one, nodes.Assign):
            value = walk.substitute(one.value, known)
            known.pop(one.name, None)
            known |= {one.name: value} if one.value.type == "i32" else {}
    return accesses


def _is_side_by_side(loop: nodes.For, accesses: Sequence[_Access]) -> bool:
    """Whether stores, and loads that change with the last name, move one element when that name grows by one."""
    inside = {loop.names[-1], *walk.find_defined(loop.body)}

    def is_one_for_all(index: Index) -> bool:
        return not walk.locals_in(index) & inside

    def steps_by_one(index: Index) -> bool:
        return bool(index) and _is_shifted(index[-1], loop.names[-1]) and is_one_for_all(index[:-1])

    reads = [index for access in accesses for _, index in access.reads]
    places = [access.place for access in accesses if access.place is not None]
    return all(steps_by_one(place) and not any(map(walk.reads_memory, place)) for place in places) and all(
        steps_by_one(index) or is_one_for_all(index) for index in reads
    )


def _is_shifted(expr: nodes.Expr, name: str) -> bool:
    """Whether an index is a name, plus or minus what no iteration changes."""
    terms = affine(expr, {}).terms
    others = [atom for atom in terms if atom != name]
    return terms.get(name) == 1 and not any(isinstance(atom, str) or not walk.is_invariant(atom) for atom in others)


def _reads_its_own(accesses: Sequence[_Access]) -> bool:
    """Whether what the loop changes is read where the same iteration stores to, or not at all."""
    places: dict[str, set[Index]] = {}
    for access in accesses:
        if isinstance(access.statement, nodes.Store) and access.place is not None:
            places.setdefault(access.statement.array, set()).add(access.place)
    reads = [read for access in accesses for read in access.reads]
    return all(places.get(array, {index}) == {index} for array, index in reads)


def _strips(loop: nodes.For, accesses: Sequence[_Access], kernel: nodes.Kernel, names: Names) -> nodes.For:
    (begin, end), strip = loop.bounds[-1], names.local("strip_of", "i32")
    first, size, lane, again = (names.local(wish, "i32") for wish in ("strip_first", "strip_size", "lane", "lane"))
    index, names.types[loop.names[-1]] = nodes.Local(loop.names[-1], "i32"), "i32"
    given = [name for one in loop.body for name in walk.find_assigned(one)]
    fresh = {name: names.local(name, names.types[name]) for name in dict.fromkeys([*loop.names[-1:], *given])}
    stored: dict[str, nodes.Local] = {}
    arrays: dict[tuple[str, Index], nodes.LocalArray] = {}
    ahead: list[nodes.Stmt] = [assign(fresh[index.name], integer("+", first, lane))]
    copies: list[nodes.Stmt] = [assign(index, integer("+", first, again))]

    def rename(expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Local):
            return fresh.get(expr.name, expr)
        if isinstance(expr, nodes.Load) and expr.array in stored:
            return stored[expr.array]
        if isinstance(expr, nodes.Unary) and moves(expr):
            return replace(expr, operator=FUNCTIONS[expr.operator], value=rename(expr.value))
        return walk.rebuild(expr, rename)

    for access in accesses:
        match access.statement:
            case nodes.Assign() as one:
                ahead.append(replace(one, name=fresh[one.name].name, value=rename(one.value)))
            case nodes.Store() as one:
                kind, place = kernel.arrays[one.array].type, access.place or ()
                value = names.local(f"{one.array}_value", kind)
                ahead.append(nodes.Assign(value.name, rename(one.value), one.line))
                stored[one.array] = value
                if (one.array, place) not in arrays:
                    array = names.local(f"{one.array}_ahead", kind).name
                    arrays[one.array, place] = nodes.LocalArray(array, kind, LENGTH)
                    copies.append(replace(one, index=place, value=nodes.Load(array, (again,), (), kind)))
                ahead.append(nodes.Store(arrays[one.array, place].name, (lane,), (), value, one.line))
            case other:
                raise AssertionError(f"{other} is not a statement of an elementwise loop")
    values = within_limits(run_lanes(lane, number(0), size, ahead), names)
    lanes: list[nodes.Stmt] = [*arrays.values(), *values, run_lanes(again, number(0), size, copies)]
    if len(loop.names) > 1:
        whole = run_lanes(index, first, integer("+", first, size), loop.body)
        lanes = [nodes.If(nodes.Binary("<", size, number(SHORTEST), "u1"), (whole,), tuple(lanes))]
    body = (*bounds_of_strip(strip, begin, end, first, size), *lanes)
    bounds = (*loop.bounds[:-1], (number(0), strips_between(begin, end)))
    in_strips = replace(loop, names=(*loop.names[:-1], strip.name), bounds=bounds, body=body)
    return walk.transform(
        in_strips, lambda expr: expr, lambda part: part if part.line else replace(part, line=loop.line)
    )  # type: ignore[return-value]
