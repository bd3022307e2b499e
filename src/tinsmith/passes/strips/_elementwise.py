"""Elementwise: a loop that only computes numbers and stores them, in strips of 64 iterations.

    for i in range(n):                        for strip in range((n + 63) >> 6):
        z[i] = 2.5 * x[i] + y[i]                  first = strip << 6; size = min(64, n - first)
                                       ->         for lane in range(size):
                                                      i = first + lane; ahead[lane] = 2.5 * x[i] + y[i]
                                                  for lane in range(size):
                                                      z[first + lane] = ahead[lane]

Strips run in place of iterations, in parallel where those did. The first of the inner loops stores to memory that
nothing else can point to, so compilers vectorize it (docs/about/decisions/vector-speed.md); the second copies. Of a
loop over several names the last one is in strips: a strip divides by the sizes of the others once, where each iteration
did. There a short strip may be all of a row, and runs as it was.

A strip reads all that it needs before it stores anything. So an array that the loop changes must be read at the very
place that the same iteration stores to, or in another row: then every order of iterations gives the same result. What
an iteration reads after it stored is the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...analyses import affine
from ...ir import Names, Operator, Type, both, compare, integer, nodes, number, product, walk
from ._engine_vectors import WIDTH, has_engine_vector
from ._parts import (
    FUNCTIONS,
    KINDS,
    LENGTH,
    POWER,
    SHORTEST,
    assign,
    at_line,
    bounds_of_strip,
    by_arithmetic,
    is_vector,
    run_lanes,
    run_rolled,
    strips_between,
    within_limits,
)
from ._row_major import behind_zeros, number_element
from .lanes import operations

Index = tuple[nodes.Expr, ...]


@dataclass(frozen=True)
class _Access:
    """Statements that touch arrays, each with what it reads and where it stores, in the loop's own names."""

    statement: nodes.Stmt
    reads: Mapping[nodes.Load, Index]
    place: Index | None


def strip_elementwise(
    task: nodes.Stmt, kernel: nodes.Kernel, names: Names, *, has_vectors: bool = False, is_whole: bool = False
) -> nodes.Stmt | None:
    """Return a statement of the top level in strips; None if it is not such a loop, or machines have no vectors for it.

    With `has_vectors`, strips of 64 are in vectors of the engine where they can be; if `is_whole`, only where the
    engine takes all operations on vectors.
    """
    if not isinstance(task, nodes.For) or not _runs_in_strips(task, kernel):
        return None
    has_vectors = has_vectors and _may_be_vectors(task, is_whole=is_whole)
    return strip_loop(task, kernel, names, is_task=True, has_vectors=has_vectors)[1]


_FEW = 8
"""Operations of an iteration up to which the four vectors of a strip are written out, without a loop over them."""
_MOST_ACCESSES = 24
"""Elements that an iteration in vectors may load and store at most.

Engines' compilers take a time that goes with the square of the elements of all lanes: a sum of 100 arrays took 4 s, one
of 300 took 36 s (Quadrants 1.3.3). A sum of 40 arrays is faster without vectors: 0.81 of the time in Quadrants, 0.60 in
Taichi; one of 20 takes 1.37 and 0.90 of it.
"""


def count_accesses(loop: nodes.For) -> int:
    """Return the number of elements that an iteration loads and stores."""
    stores = sum(isinstance(one, nodes.Store) for one in loop.body)
    return stores + len({load for access in _accesses(loop) for load in access.reads})


_MOST = 1 << 30
"""Elements that an array of a strip in vectors may have at most."""


def _may_be_vectors(loop: nodes.For, *, is_whole: bool) -> bool:
    """Return True if everything that a loop computes can be written for vectors of the engine, and that pays."""
    parts = map(by_arithmetic, walk.parts_in(loop.body))
    return count_accesses(loop) <= _MOST_ACCESSES and all(has_engine_vector(one, is_whole=is_whole) for one in parts)


def use_whole_vectors(kernel: nodes.Kernel, aligned: Collection[str], *, is_whole: bool) -> nodes.Kernel:
    """Return a kernel whose strips in vectors load and store a vector at a time, of those arrays where they can.

    That is where all accesses of an array are at a loop's own index, in loops that become strips in vectors and begin
    at 0. The engine then gets it as an array of vectors. Numbers that are stored one by one took three times as long:
    before each, compilers load the array's address again, which the store before may have changed. Numbers that are
    loaded one by one take as long as a vector, but twice as long to compile.

    Args:
        kernel: the kernel, before its loops are in strips.
        aligned: the arrays whose memory begins at a multiple of a vector's size.
        is_whole: as in `strip_elementwise`.
    """
    fitting = walk.find_touched(kernel.body).intersection(aligned)
    fitting = {name for name in fitting if _may_hold_vectors(kernel.arrays[name])}
    for task in kernel.body:
        touched = fitting & walk.find_touched([task])
        if touched:
            fitting -= touched - _find_in_vectors(task, kernel, is_whole=is_whole)
    if not fitting:
        return kernel
    arrays = {name: replace(one, vector_width=WIDTH) if name in fitting else one for name, one in kernel.arrays.items()}
    return replace(kernel, arrays=arrays)


def _may_hold_vectors(array: nodes.Array) -> bool:
    return array.rank >= 1 and array.type in (Type.F32, Type.I32) and array.is_given and not array.is_clamped


def _find_in_vectors(task: nodes.Stmt, kernel: nodes.Kernel, *, is_whole: bool) -> set[str]:
    """Return the arrays of which a task, in strips in vectors, loads and stores whole vectors."""
    if not isinstance(task, nodes.For) or not _runs_in_strips(task, kernel):
        return set()
    if len(task.names) != 1 or task.bounds[0][0] != number(0) or not _may_be_vectors(task, is_whole=is_whole):
        return set()
    own = nodes.Local(task.names[0], Type.I32)
    whole, other = set[str](), set[str]()
    for access in _accesses(task):
        places = {(load.array, index) for load, index in access.reads.items()}
        if isinstance(access.statement, nodes.Store):
            name, kind = access.statement.array, access.statement.value.type
            places.add((name, access.place or ()))
            other |= set() if kind == kernel.arrays[name].type else {name}
        for name, index in places:
            (whole if index == behind_zeros(own, len(index)) else other).add(name)
    return whole - other


def _runs_in_strips(task: nodes.For, kernel: nodes.Kernel) -> bool:
    """Return True if a loop of the top level can run in strips."""
    if not is_elementwise(task, kernel):
        return False
    # A local of the top level goes on from one iteration of a serial loop to the next.
    carried = walk.find_defined([one for one in kernel.body if not isinstance(one, nodes.For)])
    return carried.isdisjoint(walk.find_defined(task.body))


def _is_function(one: nodes.Expr) -> bool:
    """Return True for a function that has a version in plain arithmetic, and for that version."""
    match one:
        case nodes.Unary(operator):
            return operator in FUNCTIONS or operator in FUNCTIONS.values()
        case nodes.Binary(operator):
            return operator in (Operator.POW, POWER)
    return False


def _write_vectors(
    loop: nodes.For,
    kernel: nodes.Kernel,
    names: Names,
    first: nodes.Local,
    size: nodes.Local,
    otherwise: Sequence[nodes.Stmt],
) -> nodes.If:
    """Return a strip in vectors of the engine if it has all 64 iterations, and the statements `otherwise` if not.

    Elements that are read come first and those that are stored last: each store makes the compilers load the arrays'
    addresses again. And they must see that a vector's elements lie side by side: a sum of an index and 1, of which it
    is not known that it does not overflow, may be anything. So an index has at most 30 bits.
    """
    index, part, base, lane = loop.names[-1], *(names.local(wish, Type.I32) for wish in ("part", "base", "lane"))
    fresh = {name: names.local(name, names.types[name]) for one in loop.body for name in walk.find_assigned(one)}
    fresh[index] = names.local(index, Type.I32)
    places: dict[nodes.Expr, nodes.Local] = {}
    loaded: dict[nodes.Load, nodes.Local] = {}

    def at(array: str, place: Index) -> Index:
        """Return the index of an element by its number: zeros, and the number as the last part."""
        # The lane is added last, behind the mask: only so do compilers see that a vector's elements lie side by side.
        parts = [walk.substitute(one, {index: base}) for one in place]
        start = number_element(parts, lambda axis: nodes.Size(array, axis))
        if start not in places:
            places[start] = names.local("at", Type.I32)
        return behind_zeros(integer(Operator.ADD, places[start], lane), len(place))

    def load(one: nodes.Load, place: Index) -> nodes.Expr:
        # One element for all lanes is loaded as a number.
        if index not in walk.locals_in(place):
            return replace(one, index=place)
        return loaded.setdefault(replace(one, index=at(one.array, place)), names.local(f"{one.array}_at", one.type))

    values, stored = compute_values(loop, kernel, names, fresh, load)
    stores = [nodes.Store(array, at(array, place), (), value) for (array, place), value in stored.items()]
    loads = [assign(local, load) for load, local in loaded.items()]
    own = (
        [assign(fresh[index], integer(Operator.ADD, base, lane))] if fresh[index].name in walk.find_read(values) else []
    )
    body = (*own, *loads, *values, *stores)
    is_whole_stored = all(kernel.arrays[array].vector_width for array, _ in stored)
    is_short = is_whole_stored and operations(loop.body) <= _FEW
    vectors = run_lanes(lane, number(0), number(LENGTH if is_short else WIDTH), body)
    is_whole = _is_whole_strip(walk.find_touched(loop.body), kernel, size)
    start = first if is_short else integer(Operator.ADD, first, integer(Operator.MUL, part, number(WIDTH)))
    masks = [assign(local, integer(Operator.BIT_AND, start, number(_MOST - 1))) for start, local in places.items()]
    strip = (assign(base, start), *masks, replace(vectors, vector_width=WIDTH))
    parts = strip if is_short else (run_lanes(part, number(0), number(LENGTH // WIDTH), strip),)
    return nodes.If(is_whole, parts, tuple(otherwise))


def _is_whole_strip(arrays: Collection[str], kernel: nodes.Kernel, size: nodes.Local) -> nodes.Expr:
    """Return the condition that a strip has all 64 iterations, and that no mask of 30 bits changes an index."""
    is_whole: nodes.Expr = compare(Operator.EQ, size, number(LENGTH))
    # Arrays of more elements use the loops.
    for name in sorted(arrays):
        sizes = [nodes.Size(name, axis) for axis in range(kernel.arrays[name].rank)]
        is_whole = both(is_whole, compare(Operator.LE, product(sizes or [number(1)]), number(_MOST)))
    return is_whole


def compute_values(
    loop: nodes.For,
    kernel: nodes.Kernel,
    names: Names,
    fresh: Mapping[str, nodes.Local],
    load: Callable[[nodes.Load, Index], nodes.Expr],
    convert: Callable[[nodes.Expr], nodes.Expr] = by_arithmetic,
) -> tuple[list[nodes.Stmt], dict[tuple[str, Index], nodes.Local]]:
    """Return an iteration without its stores: its statements, and by array and place the locals that are to be stored.

    Args:
        loop: the elementwise loop.
        kernel: its kernel.
        names: where what is added gets its names.
        fresh: the locals that stand for the loop's own.
        load: returns the replacement of a load, whose place is also given in the loop's own names.
        convert: returns the replacement of any other expression.
    """
    values: list[nodes.Stmt] = []
    stored: dict[tuple[str, Index], nodes.Local] = {}
    reads: Mapping[nodes.Load, Index] = {}

    def rename(expr: nodes.Expr) -> nodes.Expr:
        match expr:
            case nodes.Local(name):
                return fresh.get(name, expr)
            case nodes.Load(array):
                # Stores wait until the end of the strip: what this iteration stored is still in its local.
                return stored[array, reads[expr]] if (array, reads[expr]) in stored else load(expr, reads[expr])
        return convert(walk.rebuild(expr, rename))

    for access in _accesses(loop):
        reads = access.reads
        match access.statement:
            case nodes.Assign() as one:
                values.append(replace(one, name=fresh[one.name].name, value=rename(one.value)))
            case nodes.Store() as one:
                value = names.local(f"{one.array}_value", kernel.arrays[one.array].type)
                values.append(nodes.Assign(value.name, rename(one.value), one.line))
                stored[one.array, access.place or ()] = value
            case other:
                raise AssertionError(
                    f"unexpected {other} in an elementwise loop; an earlier check should have excluded it"
                )
    return values, stored


def is_elementwise(loop: nodes.For, kernel: nodes.Kernel) -> bool:
    """Return True if a loop can run in strips: its iterations touch elements side by side, and none another one's.

    The caller checks that iterations hand on no local.
    """
    if not _is_candidate(loop, kernel):
        return False
    accesses = _accesses(loop)
    return (
        _is_side_by_side(loop, accesses) and _reads_its_own(accesses) and all(map(is_vector, walk.parts_in(loop.body)))
    )


def _is_candidate(loop: nodes.For, kernel: nodes.Kernel) -> bool:
    """Return True if a loop has no branches, and works on plain arrays of a launch."""
    is_plain = all(isinstance(one, nodes.Assign | nodes.Store) for one in loop.body)
    bounds = walk.expressions(loop)
    match loop.bounds[-1]:
        case (nodes.Const(first), nodes.Const(end)) if end - first < SHORTEST:
            return False
        case _:
            pass
    # Bounds are read once for all strips, so no iteration may change them.
    given = walk.find_defined([loop])
    if not is_plain or loop.block_size or any(map(walk.reads_memory, bounds)) or walk.locals_in(bounds) & given:
        return False
    arrays = [kernel.arrays.get(name) for name in walk.find_touched(loop.body)]
    return (
        any(isinstance(one, nodes.Store) for one in loop.body)
        and walk.find_defined(loop.body).isdisjoint(loop.names)
        and all(one is not None and one.type in KINDS and not one.label and not one.element for one in arrays)
        and not any(one is None or one.is_of_blocks or one.name in kernel.cells for one in arrays)
    )


def _accesses(loop: nodes.For) -> list[_Access]:
    accesses: list[_Access] = []
    # Integers alone, since indices are made of these.
    known: dict[str, nodes.Expr] = {}
    for one in loop.body:
        reads = {load: tuple(walk.substitute(part, known) for part in load.index) for load in walk.loads([one])}
        place = tuple(walk.substitute(part, known) for part in one.index) if isinstance(one, nodes.Store) else None
        accesses.append(_Access(one, reads, place))
        if isinstance(one, nodes.Assign):
            # The value may read the local's own old value, so it is substituted before that is forgotten.
            value = walk.substitute(one.value, known)
            known.pop(one.name, None)
            known |= {one.name: value} if one.value.type == Type.I32 else {}
    return accesses


def _is_side_by_side(loop: nodes.For, accesses: Sequence[_Access]) -> bool:
    """Return True if stores, and loads that change with the last name, move one element when that name grows by one."""
    inside = {loop.names[-1], *walk.find_defined(loop.body)}

    def is_one_for_all(index: Index) -> bool:
        return not walk.locals_in(index) & inside

    def steps_by_one(index: Index) -> bool:
        return bool(index) and is_shifted(index[-1]) and is_one_for_all(index[:-1])

    def is_shifted(expr: nodes.Expr) -> bool:
        """Return True if an index is the last name, plus or minus what no iteration changes."""
        terms = {**affine(expr, {}).terms}
        return terms.pop(loop.names[-1], 0) == 1 and all(
            atom not in inside if isinstance(atom, str) else walk.is_invariant(atom) for atom in terms
        )

    reads = [index for access in accesses for index in access.reads.values()]
    places = [access.place for access in accesses if access.place is not None]
    return all(steps_by_one(place) and not any(map(walk.reads_memory, place)) for place in places) and all(
        steps_by_one(index) or is_one_for_all(index) for index in reads
    )


def _reads_its_own(accesses: Sequence[_Access]) -> bool:
    """Return True if what the loop changes is read where the same iteration stores, in another row, or not at all."""
    places: dict[str, set[Index]] = {}
    for access in accesses:
        if isinstance(access.statement, nodes.Store) and access.place is not None:
            places.setdefault(access.statement.array, set()).add(access.place)
    reads = [(load.array, index) for access in accesses for load, index in access.reads.items()]
    return all(_is_apart(index, place) for array, index in reads for place in places.get(array, {index}) - {index})


def _is_apart(one: Index, other: Index) -> bool:
    """Return True if two elements lie in different rows: their indices differ along an axis before the last one."""
    pairs = zip(one[:-1], other[:-1], strict=True)
    return any(affine(left, {}).plus(affine(right, {}), -1).number not in (None, 0) for left, right in pairs)


def strip_loop(
    loop: nodes.For, kernel: nodes.Kernel, names: Names, *, is_task: bool = False, has_vectors: bool = False
) -> tuple[list[nodes.Stmt], nodes.For]:
    """Return an elementwise loop in strips, and the arrays to declare around it.

    One that `is_task` declares its arrays itself, in the parallel loop: at the top level engines would put them into
    memory that all threads share.
    """
    (begin, end), strip = loop.bounds[-1], names.local("strip_of", Type.I32)
    first, size, lane, again = (names.local(wish, Type.I32) for wish in ("strip_first", "strip_size", "lane", "lane"))
    index, names.types[loop.names[-1]] = nodes.Local(loop.names[-1], Type.I32), Type.I32
    given = [name for one in loop.body for name in walk.find_assigned(one)]
    fresh = {name: names.local(name, names.types[name]) for name in dict.fromkeys([*loop.names[-1:], *given])}
    values, stored = compute_values(loop, kernel, names, fresh, lambda one, _: walk.substitute(one, fresh))
    ahead = [assign(fresh[index.name], integer(Operator.ADD, first, lane)), *values]
    copies: list[nodes.Stmt] = [assign(index, integer(Operator.ADD, first, again))]
    arrays: list[nodes.Stmt] = []
    for (array, place), value in stored.items():
        name = names.local(f"{array}_ahead", value.type).name
        arrays.append(nodes.LocalArray(name, value.type, LENGTH))
        ahead.append(nodes.Store(name, (lane,), (), value))
        copies.append(nodes.Store(array, place, (), nodes.Load(name, (again,), (), value.type)))
    lanes: list[nodes.Stmt] = arrays if is_task else []
    lanes = [*lanes, *within_limits(run_lanes(lane, number(0), size, ahead), names)]
    lanes.append(run_lanes(again, number(0), size, copies))
    # A strip of one name is short only at the end of the loop. With several names it may be a whole row: rows of 7 take
    # 0.8 of the plain kernel's time this way (docs/about/decisions/vector-speed.md).
    if len(loop.names) > 1:
        whole = run_lanes(index, first, integer(Operator.ADD, first, size), loop.body)
        lanes = [nodes.If(compare(Operator.LT, size, number(SHORTEST)), (whole,), tuple(lanes))]
    elif has_vectors and not any(map(_is_function, walk.parts_in(loop.body))):
        # Only the last strip is not in vectors, and those of arrays larger than hardly a machine has. With functions it
        # computes the same versions of them as the others.
        lanes = run_rolled(index, first, size, loop.body, names)
    if has_vectors:
        lanes = [_write_vectors(loop, kernel, names, first, size, lanes)]
    body = at_line((*bounds_of_strip(strip, begin, end, first, size), *lanes), loop.line)
    bounds = (*loop.bounds[:-1], (number(0), strips_between(begin, end)))
    strips = replace(loop, names=(*loop.names[:-1], strip.name), bounds=bounds, body=body)
    return [] if is_task else arrays, strips
