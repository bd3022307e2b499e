"""Maxima and minima that atomics take: their adjoint goes to the candidates that won, evenly where several did.

Who won shows only when all iterations are through. So the backward pass runs such a task forward once more, finds the
winner, counts who equals it, and then reverses this instead of the task, for `atomic_max(y[k], v)`:

    y[k] = y[k] / ties[k] if before[k] == winner[k] else 0.0      # for every k
    if v == winner[k]:                                            # where the atomic stands
        atomic_add(y[k], v / ties[k])

Worked out in another kernel, `v` has other last bits: of the winners 44 to 66 in a hundred did not equal themselves. So
a `v` that was calculated is kept on a tape by the kernel that finds the winner, and taken from there to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ...source.ir import nodes, types, walk
from .._algebra import cast, constant, over, times
from .._exact import Exact
from .._names import Names
from .._slots import Slotted, place_of, replaced, slotted
from ..extremes import Change, Extreme, Index
from ..polish import eliminate_dead_code, simplify
from ._evaluated import extent
from ._program import Reserve, Run, TapeSize
from ._room import most_runs

Block = tuple[nodes.Stmt, ...]
ZERO, ONE = constant(0, "i32"), constant(1, "i32")


@dataclass(frozen=True)
class Extremes:
    """A task in which atomics take maxima and minima, taken apart.

    Attributes:
        arrays: what lies beside each array.
        reserve: the tape; None where no value has to be kept.
        find: the kernel that keeps the values, and finds the winners.
        count: the kernel that counts who equals them.
        kernel: the task's kernel, with all arrays that were added.
        gathering: what is reversed in the place of the task.
        settling: what is reversed after that, a task for each array: what stood there before.
        note: what is kept, in words.
    """

    arrays: tuple[Extreme, ...]
    reserve: Reserve | None
    find: nodes.Kernel
    count: nodes.Kernel
    kernel: nodes.Kernel
    gathering: Block
    settling: tuple[Block, ...]
    note: str


def taken_apart(statements: Block, kernel: nodes.Kernel, arrays: Collection[str], names: Names) -> Extremes:
    """Take a task apart in which atomics take maxima or minima of `arrays`, of nothing else in these."""
    return _Apart(statements, kernel, arrays, names).extremes()


class _Apart:
    def __init__(
        self,
        statements: Block,
        kernel: nodes.Kernel,
        arrays: Collection[str],
        names: Names,
    ) -> None:
        statements = walk.numbered(statements)
        self.kernel = kernel
        self.names = names
        self.beside = {name: self._extreme(kernel.arrays[name]) for name in sorted(arrays)}
        last = statements[-1]
        self.loop = last if isinstance(last, nodes.For) and last.is_parallel else None
        self.before = statements[:-1] if self.loop else ()
        self.body = self.loop.body if self.loop else statements
        atomics = (one for one in walk.stores(self.body) if isinstance(one, nodes.Atomic))
        self.atomics = {one.number: one for one in atomics if one.array in self.beside}
        changed = {one.array for one in walk.stores(statements)}
        exact = Exact(statements, changed)
        kept = {key: one.array for key, one in self.atomics.items() if not exact.has(one.value)}
        self.slotted: Slotted = slotted(self.body, kept, names)
        self.changed = frozenset(changed)
        widest = "f64" if any(kernel.arrays[self.atomics[key].array].type == "f64" for key in kept) else "f32"
        self.tape = nodes.Array(names.shared("candidates"), widest, 1)
        self._reserve: Reserve | None = None

    def _extreme(self, array: nodes.Array) -> Extreme:
        before, winner, ties = (self.names.shared(f"{word}_{array.name}") for word in ("before", "winner", "ties"))
        return Extreme(array, before, winner, ties, array.type)

    def extremes(self) -> Extremes:
        if self.slotted.slots:
            self._reserve = self.reserve()
        start = self.start(self._reserve) if self._reserve else ()
        find = self.written("winners", [self.around(start, self.found)])
        first = [one for beside in self.beside.values() for one in beside.over_all(self.names, self.first_tie(beside))]
        count = self.written("ties", [*first, self.around(start, self.counted)])
        gathering = self.gathering(start)
        settling = [one.over_all(self.names, self.settled(one)) for one in self.beside.values()]
        whole = replace(self.kernel, arrays=self.arrays(), arguments=self.arguments())
        whole = replace(whole, locals={**self.kernel.locals, **self.names.types})
        beside = tuple(self.beside.values())
        return Extremes(beside, self._reserve, find, count, whole, gathering, tuple(settling), self.note)

    @property
    def note(self) -> str:
        names = ", ".join(f"`{name}`" for name in self.beside)
        if not self.slotted.slots:
            return ""
        size = types.width(self.tape.type) // 8
        return f"tape: every value that may become {names}, to compare it with what won: {size} bytes"

    # What stands for an atomic -----------------------------------------------------------------

    def found(self, one: nodes.Atomic) -> Sequence[nodes.Stmt]:
        winner = self.beside[one.array].winner
        slot = self.slotted.slots.get(one.number)
        if slot is None:
            return [replace(one, array=winner)]
        kind = self.kernel.arrays[one.array].type
        value = nodes.Local(self.names.fresh(f"candidate_{one.array}", kind), kind)
        return [
            nodes.Assign(value.name, one.value, one.line),
            nodes.Store(self.tape.name, (slot,), (), cast(value, self.tape.type), one.line),
            replace(one, array=winner, value=value),
        ]

    def counted(self, one: nodes.Atomic) -> Sequence[nodes.Stmt]:
        more = constant(1, self.kernel.arrays[one.array].type)
        ties = nodes.Atomic("add", self.beside[one.array].ties, one.index, one.entry, more, None, one.line)
        return self.if_won(one, lambda here: [replace(ties, index=here)])

    def gathered(self, one: nodes.Atomic) -> Sequence[nodes.Stmt]:
        beside = self.beside[one.array]

        def added(here: Index) -> Sequence[nodes.Stmt]:
            share = over(cast(one.value, beside.array.type), beside.load(beside.ties, here, one.entry))
            return [nodes.Atomic("add", one.array, here, one.entry, share, None, one.line)]

        return self.if_won(one, added)

    def if_won(self, one: nodes.Atomic, then: Callable[[Index], Sequence[nodes.Stmt]]) -> Sequence[nodes.Stmt]:
        slot = self.slotted.slots.get(one.number)
        kept = None if slot is None else nodes.Load(self.tape.name, (slot,), (), self.tape.type)
        return self.beside[one.array].if_won(one, self.names, then, kept)

    # What is done for every element ---------------------------------------------------------------

    def first_tie(self, beside: Extreme) -> Change:
        def change(index: Index, entry: tuple[int, ...]) -> Sequence[nodes.Stmt]:
            one = nodes.Store(beside.ties, index, entry, constant(1, beside.count_type))
            return [nodes.If(beside.stays(index, entry), (one,))]

        return change

    def settled(self, beside: Extreme) -> Change:
        def change(index: Index, entry: tuple[int, ...]) -> Sequence[nodes.Stmt]:
            old, ties = (beside.load(name, index, entry) for name in (beside.array.name, beside.ties))
            share = nodes.Store(beside.array.name, index, entry, over(old, ties))
            nothing = nodes.Store(beside.array.name, index, entry, constant(0, beside.array.type))
            return [nodes.If(beside.stays(index, entry), (share,), (nothing,))]

        return change

    # Kernels ------------------------------------------------------------------------------------

    def around(self, start: Block, change: Callable[[nodes.Atomic], Sequence[nodes.Stmt]]) -> nodes.Stmt:
        """The task's loop with something for its atomics."""
        return self.looped((*start, *replaced(self.slotted.body, self.atomics, change)))

    def looped(self, body: Block) -> nodes.Stmt:
        """The task's loop around other statements; one of a single iteration where it has none."""
        if self.loop is None:
            return nodes.For((self.names.fresh("once", "i32"),), ((ZERO, ONE),), body)
        return replace(self.loop, body=body, is_parallel=True)

    def gathering(self, start: Block) -> Block:
        """What is reversed in the place of the task."""
        body = (*start, *replaced(self.slotted.body, self.atomics, self.gathered))
        return body if self.loop is None else (*self.before, replace(self.loop, body=body))

    def written(self, word: str, body: Sequence[nodes.Stmt]) -> nodes.Kernel:
        """A kernel of the task that changes none of the task's own arrays but for itself."""
        kinds = {**self.kernel.locals, **self.names.types}
        statements = simplify(eliminate_dead_code((*self.before, *body), private=self.changed), kinds)
        used = walk.touched(statements) | walk.sized(statements)
        found = {name: array for name, array in self.arrays().items() if name in used}
        mentioned = {one.name for one in _parts(statements) if isinstance(one, nodes.Argument)}
        arguments = {name: kind for name, kind in self.arguments().items() if name in mentioned}
        name = self.names.shared(f"{self.kernel.name}_{word}")
        return replace(
            self.kernel, name=name, arrays=found, arguments=arguments, locals=kinds, body=statements, cells=()
        )

    def arrays(self) -> dict[str, nodes.Array]:
        reserve = self._reserve
        found = dict(self.kernel.arrays)
        for one in self.beside.values():
            found |= {name: replace(one.array, name=name, label="") for name in (one.before, one.winner, one.ties)}
        if reserve is None:
            return found
        found[self.tape.name] = self.tape
        for size in reserve.tapes:
            found |= {name: nodes.Array(name, "i32", 1) for name in size.starts or ()}
        return found | {reserve.total: nodes.Array(reserve.total, "i32", 0)}

    def arguments(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        reserve = self._reserve
        found = dict(self.kernel.arguments)
        for size in reserve.tapes if reserve else ():
            found |= {size.depth[0]: ("i32", ())} if size.depth else {}
        return found

    # The tape -----------------------------------------------------------------------------------

    def reserve(self) -> Reserve:
        """Room for the values that are kept."""
        arrays = ((self.tape.name, self.tape.type, 1),)
        iterations = extent(self.loop.bounds) if self.loop else ONE
        most = most_runs(self.body, self.slotted.slots) if iterations is not None else None
        depth = starts = None
        if most is not None:
            depth = self.names.shared("depth_candidates"), most
        else:
            starts = self.names.shared("start_candidates"), self.names.shared("count_candidates")
        total = self.names.shared("iterations")
        self._reserve = Reserve((TapeSize(arrays, depth, starts),), ZERO, total, None)
        measured = Run(self.measured(total), 0, {}) if iterations is None else iterations
        count = Run(self.counting(starts[1]), 0, {}) if starts else None
        return replace(self._reserve, iterations=measured, count=count)

    @property
    def place(self) -> nodes.Expr:
        return place_of(self.loop.names, self.loop.bounds) if self.loop else ZERO

    def start(self, reserve: Reserve) -> Block:
        (size,) = reserve.tapes
        if size.depth is not None:
            first = times(self.place, nodes.Argument(size.depth[0], "i32"))
        else:
            assert size.starts is not None
            first = nodes.Load(size.starts[0], (self.place,), (), "i32")
        return (nodes.Assign(self.slotted.counter, first),)

    def measured(self, total: str) -> nodes.Kernel:
        """The kernel that stores how many parallel iterations there are."""
        assert self.loop is not None
        many: nodes.Expr = ONE
        for first, end in self.loop.bounds:
            size = nodes.Binary("-", end, first, "i32")
            many = times(many, nodes.Binary("max", size, ZERO, "i32"))
        return self.written("iterations", [nodes.Store(total, (), (), many)])

    def counting(self, count: str) -> nodes.Kernel:
        """The kernel that counts the values of each iteration."""
        body = replaced(self.slotted.body, self.atomics, lambda _: [])
        start = nodes.Assign(self.slotted.counter, ZERO)
        inside = (start, *_with_counts(body, self.slotted.counter, count, self.place))
        return self.written("count_candidates", [self.looped(inside)])


def _with_counts(body: Sequence[nodes.Stmt], counter: str, count: str, place: nodes.Expr) -> Block:
    """Statements that store the counter wherever they move it: no way out of an iteration misses that."""
    store = nodes.Store(count, (place,), (), nodes.Local(counter, "i32"))
    return walk.rewritten(
        body, lambda one: (one, store) if isinstance(one, nodes.Assign) and one.name == counter else (one,)
    )


def _parts(body: Sequence[nodes.Stmt]) -> list[nodes.Expr]:
    return [part for one in walk.statements(body) for expr in walk.expressions(one) for part in walk.parts(expr)]
