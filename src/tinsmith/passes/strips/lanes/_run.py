"""Lanes: a parallel loop with inner loops of data-dependent length, in blocks of iterations that run side by side.

    for r in range(n):                        for block of 32 iterations:
        t = 0.0                                   t: an array of 32, as each local that lives across loops
        while t < x[r]:                           while any lane is active:
            t += exp(-t) + 0.1         ->             for lane in range(32):
        y[r] = t                                          e = exp(-t[lane]) + 0.1
                                                          t[lane] = select(active[lane], t[lane] + e, t[lane])
                                                          active[lane] &= t[lane] < x[first + lane]
                                                  for lane in range(32):
                                                      y[first + lane] = t[lane]

The compilers of both engines vectorize loops over lanes that store to local arrays alone and have no branch
(docs/about/decisions/vector-speed.md). So a branch becomes a mask: its lanes are chosen by `select`. A branch that
stores, or takes long, runs only where it has a lane. What no machine vector does (a store, an atomic, a function of
the library, a division of integers) runs in a loop over lanes of its own, for active lanes alone, as it was written.

An inactive lane reads element 0 in place of what it is no longer entitled to. So a block in which an array is
empty, and one that is not full, runs iteration by iteration, as the kernel was written.

What all lanes share stays one number: a load by it is one load, and sums of all lanes are added to it by one atomic.
Bounds of inner loops that are read from memory, such as a tile's list of splats, are shared if they are found equal in
all lanes of a block; blocks in which they are not run as the kernel was written. This is for CPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from ....analyses import Liveness
from ....ir import (
    FALSE,
    TRUE,
    AtomicOperator,
    Names,
    Operator,
    Type,
    both,
    cast,
    compare,
    constant,
    integer,
    minus,
    nodes,
    number,
    plus,
    product,
    restore,
    types,
    walk,
)
from ...polish import find_addition, write_out_addition
from .._engine_vectors import has_engine_vector, with_vectors
from .._parts import assign, at_line, by_arithmetic, run_lanes
from ._loops import find_data_dependent_loops, operations, with_named_bounds
from ._sharing import Sharing
from ._statements import Block, Writer

Remade = Mapping[str, Sequence[nodes.Stmt]]
"""Locals that each loop over lanes computes again, and how."""
_WIDTH = 32
"""Lanes of a block: two machine vectors of 512 bits, so that one waits for its results while the other runs."""
_SHARED_WIDTH = 16
"""Lanes of a block that is to agree on the bounds of its loops: tiles are 16 pixels wide."""
_MOST_IN_VECTORS = 200
"""The same in vectors of the engine: what is written number by number takes Taichi 1.7.4 longer than in proportion."""
_LONG = 60
"""Operations of an iteration beyond which one vector of the engine keeps a machine busy, and two only take longer to
compile."""
_KINDS = frozenset({Type.F32, Type.F64, Type.I32, Type.U32, Type.I64})
"""Types of arrays that lanes may touch."""
_GATHER = 8
"""Operations that there must be for each element that lanes read or store apart from each other. Measured:
docs/about/decisions/vector-speed.md."""
_MOST = 400
"""Operations that an iteration may have in its text: engines take 2 to 4 seconds to compile lanes of so many."""


def run_in_lanes(
    task: nodes.Stmt, kernel: nodes.Kernel, names: Names, *, has_vectors: bool = False
) -> nodes.Stmt | None:
    """Return a statement of the top level in lanes; None if it is not such a loop, or lanes would be slower.

    With `has_vectors`, loops over lanes are printed in vectors of the engine.
    """
    if not isinstance(task, nodes.For) or not _is_candidate(task, kernel):
        return None
    if task.is_independent:
        task = replace(task, body=walk.rewrite(task.body, lambda one: (_as_addition(one),)))
        # Decided with names of its own: a loop that stays is printed as if it had not been looked at.
        if not _is_worthwhile(_share(task, names.copy())):
            return None
    sharing = _share(task, names)
    task = sharing.loop
    if not _is_worthwhile(sharing):
        return None
    lanes = _Task(task, sharing, kernel, names, has_vectors=has_vectors and _may_be_vectors(sharing)).write()
    return lanes if task.is_parallel else walk.rewrite([lanes], lambda one: (write_out_addition(one),))[0]


def _share(task: nodes.For, names: Names) -> Sharing:
    """Find what lanes share in a loop, whose inner bounds get names."""
    return Sharing(replace(task, body=with_named_bounds(task.body, names)), names)


def _as_addition(one: nodes.Stmt) -> nodes.Stmt:
    """Return an addition that was written as a load and a store as one statement again.

    On one thread no addition is atomic. But lanes that run side by side may add to one element: all would load its
    value before the first of them stores.
    """
    addition = find_addition(one)
    if addition is None or not isinstance(one, nodes.Store) or addition.value.type != one.value.type:
        return one
    operator = AtomicOperator.ADD if addition.operator == Operator.ADD else AtomicOperator.SUB
    return nodes.Atomic(operator, *addition.to, addition.value, line=one.line, number=one.number)


def _is_candidate(task: nodes.For, kernel: nodes.Kernel) -> bool:
    """Return True if iterations have a loop, and rely on nothing but plain arrays of a launch."""
    has_loop = any(isinstance(one, nodes.For | nodes.While) for one in walk.statements(task.body))
    if not (task.is_parallel or task.is_independent) or task.block_size or not has_loop:
        return False
    refused = (nodes.Draw, nodes.Decompose, nodes.Barrier, nodes.Vote, nodes.LocalArray)
    arrays = [kernel.arrays[name] for name in walk.find_touched(task.body)]
    outside = walk.find_defined([one for one in kernel.body if not isinstance(one, nodes.For)])
    return (
        not any(isinstance(one, refused) or _loses_digits(one, kernel) for one in walk.statements(task.body))
        and all(map(walk.is_invariant, walk.expressions(task)))
        and not walk.find_mentioned(task.body) & outside
        and all(one.type in _KINDS and one.is_given for one in arrays)
        and not any(one.name in kernel.cells for one in arrays)
    )


def _loses_digits(one: nodes.Stmt, kernel: nodes.Kernel) -> bool:
    """Return True if the engine converts what is assigned to a narrower type: it warns, with the user's own line."""
    match one:
        case nodes.Assign(name, value):
            kind = kernel.locals[name]
        case nodes.Store(array, _, _, value) | nodes.Atomic(_, array, _, _, value):
            kind = kernel.arrays[array].type
        case _:
            return False
    return types.promote(kind, value.type) != kind


def _is_worthwhile(sharing: Sharing) -> bool:
    """Return True if there are loops of data-dependent length that lanes make faster, and that compile in time.

    Machines have vector operations for such loops, and the loops do more than load and store.
    """
    loops = [*find_data_dependent_loops(sharing.body, sharing.descending)]
    return bool(loops) and operations(sharing.body) <= _MOST and all(_is_quick(loop, sharing) for loop in loops)


def _may_be_vectors(sharing: Sharing) -> bool:
    """Return True if everything in inner loops can be written for vectors of the engine, and compiles in time."""
    if operations(sharing.body) > _MOST_IN_VECTORS:
        return False
    inner = [one for one in walk.statements(sharing.body) if isinstance(one, nodes.For | nodes.While)]
    return all(has_engine_vector(by_arithmetic(part)) for part in walk.parts_in(inner))


def _is_quick(loop: nodes.For | nodes.While, sharing: Sharing) -> bool:
    """Return True if machines have vectors for a loop, and enough work for each element that lanes touch apart."""
    # Lanes that read at their own places read side by side, and lanes that share an element load it once. All others
    # gather, and what they store goes through a loop of its own.
    loads = {*walk.loads(loop.body)}
    apart = [load for load in loads if not sharing.is_shared_index(load) and sharing.bounds_of(load) is None]
    stores = [store for store in walk.stores(loop.body) if not sharing.is_shared_sum(store)]
    # Not float64: a machine vector holds half as many, and no gain was measured.
    return (
        sharing.has_loop_vectors(loop)
        and not any(part.type == Type.F64 for part in walk.parts_in(loop.body))
        and operations(loop.body) >= _GATHER * (len(apart) + len(stores))
    )


class _Task:
    """Writes one parallel loop in lanes."""

    def __init__(
        self, task: nodes.For, sharing: Sharing, kernel: nodes.Kernel, names: Names, *, has_vectors: bool
    ) -> None:
        self.loop = task
        self.sharing = sharing
        self.kernel = kernel
        self.names = names
        self.has_vectors = has_vectors
        self.first, self.size = names.local("block_first", Type.I32), names.local("block_size", Type.I32)
        # One vector where there is much to do: a gradient of the march took 0.87 of two, and half the time to compile.
        is_long = has_vectors and operations(sharing.body) > _LONG
        self.width = _SHARED_WIDTH if sharing.agreed or is_long else _WIDTH
        self.writer = Writer(sharing, names, self.size)

    def write(self) -> nodes.For:
        """Write a loop over blocks of iterations.

        A parallel loop keeps its trip count, and the first iteration of each block runs all of the block. So engines
        share the work as before: a thread gets 512 iterations at least, whatever they do.
        """
        sizes = [minus(end, begin) for begin, end in self.loop.bounds]
        # The product of two negative sizes, of loops that do not run, would be positive.
        if len(sizes) > 1:
            sizes = [one if isinstance(one, nodes.Size) else integer(Operator.MAX, one, number(0)) for one in sizes]
        total = product(sizes)
        each = self.names.local("iteration", Type.I32)
        end = integer(Operator.ADD, self.first, self.size)
        one_by_one = run_lanes(each, self.first, end, (*self.places(each, sizes), *self.loop.body))
        mask = integer(Operator.BIT_AND, self.first, number(self.width - 1))
        body = (
            assign(self.size, integer(Operator.MIN, number(self.width), integer(Operator.SUB, total, self.first))),
            *self.write_block(sizes, one_by_one),
        )
        if self.loop.is_independent:
            block = self.names.local("block", Type.I32)
            shift = number(self.width.bit_length() - 1)
            blocks = integer(Operator.SHIFT_RIGHT, integer(Operator.ADD, total, number(self.width - 1)), shift)
            body = (assign(self.first, integer(Operator.SHIFT_LEFT, block, shift)), *body)
            names, bounds = (block.name,), ((number(0), blocks),)
        else:
            body = (nodes.If(compare(Operator.EQ, mask, number(0)), body),)
            names, bounds = (self.first.name,), ((number(0), total),)
        return replace(self.loop, names=names, bounds=bounds, body=at_line(body, self.loop.line))

    def write_block(self, sizes: Sequence[nodes.Expr], one_by_one: nodes.For) -> list[nodes.Stmt]:
        """Write a block: in lanes if no array is empty and lanes agree; else iteration by iteration.

        That the last block may have fewer lanes helps the compilers: a loop of a known number of lanes is unrolled
        before it is made of vectors, and LLVM 15 takes an array of more than 100 uses for one that others may know.
        """
        for place in self.places(integer(Operator.ADD, self.first, self.writer.lane), sizes):
            self.sharing.varying.add(place.name)
            self.writer.assign(place, TRUE)
        if self.has_vectors:
            self.load_own_elements()
        if not self.sharing.agreed:
            self.writer.run(self.sharing.body, TRUE)
            self.writer.flush()
            arrays, statements = self.with_arrays(self.writer.block.statements)
            return [nodes.If(self.may_read(), (*arrays, *statements), (one_by_one,))]
        # The head is in lanes, up to the last local that lanes are to agree on. Then the block decides.
        split = max(self.sharing.agreed.values()) + 1
        self.writer.run(self.sharing.body[:split], TRUE, is_open=True)
        bounds = [self.agree(name) for name in self.sharing.agreed]
        self.writer.flush()
        agrees = self.names.local("lanes_agree", Type.U1)
        test = reduce(both, [compare(Operator.EQ, low, high) for low, high in bounds])
        self.writer.block.statements.append(assign(agrees, test))
        head, self.writer.block = self.writer.block.statements, Block()
        self.writer.run(self.sharing.body[split:], TRUE)
        self.writer.flush()
        # Both blocks see what is declared here: that of the head assigns it, and that of the lanes reads it.
        given: list[nodes.Stmt] = [assign(nodes.Local(name, Type.I32), number(0)) for name in self.sharing.agreed]
        given += self.declare_shared(self.sharing.body[:split])
        begins = nodes.If(self.may_read(), tuple(head))
        runs = nodes.If(agrees, tuple(self.writer.block.statements), (one_by_one,))
        arrays, statements = self.with_arrays([*given, assign(agrees, FALSE), begins, runs])
        return [*arrays, *statements]

    def declare_shared(self, head: Sequence[nodes.Stmt]) -> list[nodes.Stmt]:
        """Return assignments of zero to the locals that the head computes once for all lanes.

        They stand before the head's block: engines limit a local to the block that assigns it first.
        """
        each = self.sharing.varying | self.sharing.agreed.keys()
        types_of = {name: self.names.types[name] for name in sorted(walk.find_defined(head) - each)}
        return [
            assign(nodes.Local(name, kind), FALSE if kind == Type.U1 else constant(0, kind))
            for name, kind in types_of.items()
        ]

    def may_read(self) -> nodes.Expr:
        """Return the condition under which inactive lanes may load: element 0 exists, or one per iteration."""
        arrays = sorted(walk.find_loaded(self.sharing.body))
        axes = [nodes.Size(name, axis) for name in arrays for axis in range(self.kernel.arrays[name].rank)]
        tests = [compare(Operator.GT, axis, number(0)) for axis in axes]
        # A vector has a known number of lanes.
        is_full = [compare(Operator.EQ, self.size, number(self.width))] if self.has_vectors else []
        return reduce(both, [*tests, *self.writer.within, *is_full], TRUE)

    def load_own_elements(self) -> None:
        """Load what inner loops read at a lane's own places before them: a vector is loaded number by number."""
        inner = [one for one in walk.statements(self.sharing.body) if isinstance(one, nodes.For | nodes.While)]
        stored = walk.find_changed(self.sharing.body)
        places = {name: place for name, (_, place) in self.sharing.own_places.items()}
        for load in dict.fromkeys(load for one in inner for load in walk.loads([one])):
            tests = self.sharing.bounds_of(load)
            if tests is None or load.array in stored or self.sharing.is_shared_index(load):
                continue
            local = self.names.local(f"{load.array}_own", load.type)
            index = tuple([walk.substitute(part, places) for part in load.index])
            self.writer.give(local, replace(load, index=index))
            self.writer.own_elements[load] = local
            self.writer.within |= dict.fromkeys(tests)

    def places(self, flat: nodes.Expr, sizes: Sequence[nodes.Expr]) -> list[nodes.Assign]:
        """Return assignments of the loop's own names in the iteration with the number `flat`."""
        assignments: list[nodes.Assign] = []
        for axis in reversed(range(len(self.loop.names))):
            name, begin = self.loop.names[axis], self.loop.bounds[axis][0]
            self.names.types[name] = Type.I32
            rest = flat
            if axis:
                over = self.names.local("over", Type.I32)
                assignments.append(assign(over, integer(Operator.FLOOR_DIV, flat, sizes[axis])))
                rest, flat = integer(Operator.SUB, flat, integer(Operator.MUL, over, sizes[axis])), over
            assignments.append(nodes.Assign(name, plus(begin, rest)))
        return assignments

    def agree(self, name: str) -> tuple[nodes.Local, nodes.Local]:
        """Give a local that lanes are to share its least value among them, and return that and the greatest."""
        each = nodes.Local(self.writer.own[name], Type.I32)
        low = self.writer.reduce(Operator.MIN, each, number(2**31 - 1))
        high = self.writer.reduce(Operator.MAX, each, number(-(2**31)))
        self.writer.block.behind.append((None, nodes.Assign(name, low)))
        return low, high

    def with_arrays(self, body: Sequence[nodes.Stmt]) -> tuple[list[nodes.Stmt], nodes.Block]:
        varying, lane = self.sharing.varying, self.writer.lane
        arrays, body = with_arrays(body, lane, self.width, varying, self.plan_remaking(), self.names)
        return arrays, with_vectors(body, lane, self.width, self.names.types) if self.has_vectors else body

    def plan_remaking(self) -> Remade:
        """Return what loops over lanes compute again, so that it is a range of elements that they read by it.

        A number from an array could be any number, to the compilers.
        """
        # The names of a loop over several are quotients and remainders, by which no range of elements is read.
        if len(self.loop.names) > 1:
            return {}
        flat = self.places(integer(Operator.ADD, self.first, self.writer.lane), ())
        places = self.sharing.own_places.items()
        return {
            name: flat if name in self.loop.names else [*flat, nodes.Assign(name, value)] for name, (_, value) in places
        }


def with_arrays(
    body: Sequence[nodes.Stmt], lane: nodes.Local, width: int, varying: set[str], remade: Remade, names: Names
) -> tuple[list[nodes.Stmt], nodes.Block]:
    """Return the declarations of arrays for what several loops over lanes use, and statements that use these.

        for lane in 0 .. size:                       for lane in 0 .. size:
            t = 0.5                            ->        t = 0.5
        for lane in 0 .. size:                           t_lanes[lane] = t
            y[first + lane] = t                      for lane in 0 .. size:
                                                         t = t_lanes[lane]
                                                         y[first + lane] = t

    Nothing else can point to these arrays, which is why compilers make vectors of the loops over lanes.
    Loops over lanes are those by the index `lane`. Locals that are `varying` have a value for each lane.
    """

    def is_over_lanes(one: nodes.Stmt) -> bool:
        return isinstance(one, nodes.For) and one.names == (lane.name,)

    loops = [one for one in walk.statements(body) if is_over_lanes(one)]
    inner = [part for one in loops for part in walk.statements([one]) if isinstance(part, nodes.For)]
    uses = Counter(name for one in loops for name in walk.find_mentioned([one]) & varying)
    # Variables of loops inside are one loop's own. What each loop computes again needs no array.
    of_one = {name for part in inner for name in part.names} | remade.keys()
    arrays: dict[str, nodes.LocalArray] = {}
    for name in sorted(name for name, count in uses.items() if count > 1 and name not in of_one):
        kind = Type.I32 if names.types[name] == Type.U1 else names.types[name]
        arrays[name] = nodes.LocalArray(names.fresh(f"{name}_lanes", kind), kind, width)

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if not isinstance(one, nodes.For) or not is_over_lanes(one):
            return [one]
        given = sorted(walk.find_defined(one.body) & arrays.keys())
        # All that is assigned is stored at the end. If only some paths assign it, the old value is needed, too.
        _, live = Liveness().block(one.body, {*given})
        loads = [part for name in sorted(live & {*arrays, *remade}) for part in remade.get(name) or [load(name)]]
        stores = [store(name) for name in given]
        return [replace(one, body=(*loads, *one.body, *stores))]

    def load(name: str) -> nodes.Stmt:
        value = nodes.Load(arrays[name].name, (lane,), (), arrays[name].type)
        return nodes.Assign(name, restore(value, names.types[name]))

    def store(name: str) -> nodes.Stmt:
        value = cast(nodes.Local(name, names.types[name]), arrays[name].type)
        return nodes.Store(arrays[name].name, (lane,), (), value)

    return [*arrays.values()], walk.rewrite(body, change)
