"""A kernel whose maxima and minima are ordinary statements, with the same values and derivatives of its own.

Beside such an array lies a count, `ties`: how many candidates equal the element, beyond the first one. In code that
runs in order the element goes over to each candidate that beats it, and its derivative is a running mean of those that
tie. In a parallel loop nobody knows the winner before all iterations are through: the loop finds it in memory of its
own, through which no derivative goes; a second one adds up the candidates that won, the element is their mean.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...source.ir import NotCovered, nodes, walk
from .._algebra import cast, compared, constant, minus, over, plus, straight_through, times
from .._exact import Exact
from .._names import Names
from ..analysis import concurrent_loop, owned
from ..polish import eliminate_dead_code
from ._extreme import INTEGER, Block, Change, Extreme, Index, extremes_of

ONE = constant(1, INTEGER)
Entry = tuple[int, ...]


@dataclass(frozen=True)
class WrittenOut:
    """A kernel without maxima and minima of some arrays.

    Attributes:
        kernel: the kernel; its arrays are those that it had, then what lies beside them.
        beside: what must be 0 before the run, by name: the array that has the same sizes.
    """

    kernel: nodes.Kernel
    beside: Mapping[str, str]


def write_out_extremes(kernel: nodes.Kernel, arrays: Collection[str], names: Names) -> WrittenOut:
    """Write out maxima and minima of floats.

    Args:
        kernel: the kernel.
        arrays: those of which maxima and minima are written out.
        names: where what is added gets its names.

    Raises:
        NotCovered: winners of a parallel loop cannot be told without running all of it again.
    """
    found = {one.array for one in _extremes_in(kernel.body, arrays)}
    return _Writing(kernel, found, names).result() if found else WrittenOut(kernel, {})


def _extremes_in(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> list[nodes.Atomic]:
    """Every maximum and minimum that statements take of elements of these arrays."""
    atomics = (one for one in walk.stores(body) if isinstance(one, nodes.Atomic))
    return [one for one in atomics if one.operator in ("min", "max") and one.array in arrays]


class _Writing:
    def __init__(self, kernel: nodes.Kernel, arrays: Collection[str], names: Names) -> None:
        self.kernel = kernel
        self.names = names
        self.extremes = {name: self._extreme(one) for name, one in kernel.arrays.items() if name in arrays}
        self.raced = {name for task in kernel.body for name in self._raced(task)}

    def _extreme(self, array: nodes.Array) -> Extreme:
        winner, ties = (self.names.fresh(f"{array.name}_{what}") for what in ("winner", "ties"))
        return Extreme(array, array.name, winner, ties, INTEGER)

    def result(self) -> WrittenOut:
        body = tuple([new for task in self.kernel.body for new in self._task(task)])
        beside: dict[str, nodes.Array] = {}
        of: dict[str, str] = {}
        for name, extreme in self.extremes.items():
            plain = replace(extreme.array, label="", is_differentiable=False)
            beside[extreme.ties] = replace(plain, name=extreme.ties, type=INTEGER)
            of[extreme.ties] = name
            if name in self.raced:
                beside[extreme.winner] = replace(plain, name=extreme.winner)
                of[extreme.winner] = name
        cells = (*self.kernel.cells, *(name for name, array in of.items() if array in self.kernel.cells))
        arrays = {**self.kernel.arrays, **beside}
        kinds = {**self.kernel.locals, **self.names.types}
        whole = replace(self.kernel, body=body, arrays=arrays, locals=kinds, cells=cells)
        return WrittenOut(whole, {name: array for name, array in of.items() if array not in self.kernel.cells})

    # Tasks ------------------------------------------------------------------------------------

    def _raced(self, task: nodes.Stmt) -> frozenset[str]:
        """Arrays of which several iterations of a parallel task take the maximum or minimum of an element."""
        loop = concurrent_loop(task)
        if loop is None:
            return frozenset()
        return frozenset(one.array for one in _extremes_in(loop.body, self.extremes)) - owned(loop)

    def _task(self, task: nodes.Stmt) -> Block:
        raced = self._raced(task)
        if not raced or not isinstance(task, nodes.For):
            return walk.rewritten((task,), self._in_order)
        winners = self._winners(task, raced)
        # A candidate that was calculated has other last bits in another loop where an engine compiles both
        # differently. In order the winner is known at once. The rest of the task stays parallel: the gradient of a
        # loop in order asks for all that the loop changes, which nobody has kept.
        exact = Exact(task.body, {one.array for one in walk.stores(task.body)})
        if all(exact.has(one.value) for one in walk.stores(task.body) if one.array in raced):
            return self._parallel(task, winners, [self.extremes[name] for name in self.extremes if name in raced])
        rest = eliminate_dead_code([replace(task, body=_without(task.body, raced))])
        serial = replace(task, body=walk.rewritten(winners, self._in_order), is_parallel=False)
        return (*walk.rewritten(rest, self._in_order), serial)

    def _winners(self, task: nodes.For, raced: frozenset[str]) -> Block:
        """A parallel loop's body with its maxima and minima alone: what may be run twice."""
        plain = extremes_of(task.body, raced)
        for one in walk.stores(task.body):
            if one.array in raced - plain:
                raise self._refused("a maximum or minimum that its own parallel loop uses or changes otherwise", one)
        # an atomic with a result stays, to be refused
        body = walk.rewritten(task.body, lambda one: () if _is_aside(one, raced) else (one,))
        written = {one.array for one in walk.stores(task.body)}
        for one in walk.statements(body):
            if isinstance(one, nodes.Draw) or (isinstance(one, nodes.Atomic) and one.array not in raced):
                raise self._refused("a maximum or minimum in a parallel loop that cannot be run twice", one)
            parts = (part for expr in walk.expressions(one) for part in walk.parts(expr))
            if any(isinstance(part, nodes.Load) and part.array in written for part in parts):
                raise self._refused("a maximum or minimum in a parallel loop that changes what it reads", one)
        return body

    def _refused(self, construct: str, one: nodes.Stmt) -> NotCovered:
        return NotCovered(f"the tangent of {construct}", one.line, f"{self.kernel.path}:{one.line}")

    # In order ---------------------------------------------------------------------------------

    def _in_order(self, one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        """What stands for a change of memory that nobody else interferes with."""
        if not isinstance(one, nodes.Store | nodes.Atomic) or one.array not in self.extremes:
            return (one,)
        extreme = self.extremes[one.array]
        if isinstance(one, nodes.Atomic) and one.operator in ("min", "max"):
            return self._one_candidate(one, extreme)
        # an element that is no maximum any more has no ties
        return (nodes.Store(extreme.ties, one.index, one.entry, constant(0, INTEGER), one.line), one)

    def _one_candidate(self, one: nodes.Atomic, extreme: Extreme) -> Block:
        array, index, entry, line = extreme.array, one.index, one.entry, one.line
        before: list[nodes.Stmt] = []
        value = cast(one.value, array.type)
        if not isinstance(value, nodes.Const | nodes.Local | nodes.Argument):
            local = self.names.local(array.name, array.type)
            before.append(nodes.Assign(local.name, value, line))
            value = local
        old, ties = (extreme.load(name, index, entry) for name in (array.name, extreme.ties))
        if one.result is not None:
            before.append(nodes.Assign(one.result, old, line))
        count = self.names.local(extreme.ties, INTEGER)
        mean = plus(old, over(minus(value, old), cast(nodes.Binary("+", count, ONE, INTEGER), array.type)))
        won = (
            nodes.Store(extreme.ties, index, entry, constant(0, INTEGER), line),
            nodes.Store(array.name, index, entry, value, line),
        )
        tied = (
            nodes.Assign(count.name, plus(ties, ONE), line),
            nodes.Store(extreme.ties, index, entry, count, line),
            nodes.Store(array.name, index, entry, straight_through(old, mean), line),
        )
        is_tied = nodes.If(compared("==", value, old), tied, (), line)
        beats = ">" if one.operator == "max" else "<"
        return (*before, nodes.If(compared(beats, value, old), won, (is_tied,), line))

    # In parallel ------------------------------------------------------------------------------

    def _parallel(self, task: nodes.For, winners: Block, extremes: Sequence[Extreme]) -> Block:
        """Find who won, then add up all who did: what stood there before counts as many as it was a mean of."""
        raced = {one.array.name: one for one in extremes}

        def find(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
            if isinstance(one, nodes.Atomic) and one.array in raced:
                return (replace(one, array=raced[one.array].winner),)
            return self._in_order(one)

        def gather(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
            if not isinstance(one, nodes.Atomic):
                return (one,)
            extreme = raced[one.array]
            value = cast(one.value, extreme.array.type)
            more = (
                replace(one, value=value, operator="add"),
                replace(one, array=extreme.ties, value=ONE, operator="add"),
            )
            return extreme.if_won(one, self.names, lambda index: [replace(change, index=index) for change in more])

        first = replace(task, body=walk.rewritten(task.body, find))
        second = replace(task, body=walk.rewritten(winners, gather))
        begun, shared, finished = (
            tuple([new for one in extremes for new in one.over_all(self.names, change(one, task.line), task.line)])
            for change in (self._begun, self._shared, self._finished)
        )
        return (*begun, first, *shared, second, *finished)

    def _begun(self, extreme: Extreme, line: int) -> Change:
        """Before the first loop: the winner so far is what stands there."""
        return lambda index, entry: [
            nodes.Store(extreme.winner, index, entry, extreme.load(extreme.array.name, index, entry), line)
        ]

    def _shared(self, extreme: Extreme, line: int) -> Change:
        """Between both loops: what stands there is the first to be added up, or lost."""
        name, kind = extreme.array.name, extreme.array.type

        def change(index: Index, entry: Entry) -> list[nodes.Stmt]:
            old, ties = (extreme.load(one, index, entry) for one in (name, extreme.ties))
            count = self.names.local(extreme.ties, INTEGER)
            stays = (
                nodes.Assign(count.name, plus(ties, ONE), line),
                nodes.Store(extreme.ties, index, entry, count, line),
                nodes.Store(name, index, entry, times(old, cast(count, kind)), line),
            )
            goes = (
                nodes.Store(extreme.ties, index, entry, constant(0, INTEGER), line),
                nodes.Store(name, index, entry, constant(0, kind), line),
            )
            return [nodes.If(extreme.stays(index, entry), stays, goes, line)]

        return change

    def _finished(self, extreme: Extreme, line: int) -> Change:
        """After both: the mean. Where no candidate was found again, which must not be, its derivative is no number."""
        name, kind = extreme.array.name, extreme.array.type

        def change(index: Index, entry: Entry) -> list[nodes.Stmt]:
            total, winner, ties = (extreme.load(one, index, entry) for one in (name, extreme.winner, extreme.ties))
            mean = over(total, cast(ties, kind))
            return [
                nodes.Store(name, index, entry, straight_through(winner, mean), line),
                nodes.Store(extreme.ties, index, entry, minus(ties, ONE), line),
            ]

        return change


def _without(body: Sequence[nodes.Stmt], arrays: Collection[str]) -> Block:
    """Statements without what they do to these arrays."""
    return walk.rewritten(
        body, lambda one: () if isinstance(one, nodes.Store | nodes.Atomic) and one.array in arrays else (one,)
    )


def _is_aside(one: nodes.Stmt, arrays: Collection[str]) -> bool:
    """Whether a statement changes memory but these arrays, and gives no local a value."""
    if isinstance(one, nodes.Atomic):
        return one.array not in arrays and one.result is None
    return isinstance(one, nodes.Store)
