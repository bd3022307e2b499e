"""Write maxima and minima as ordinary statements with the same values, whose derivatives follow from their text.

    for i in 0 .. n:                             for i in 0 .. n:
        atomic max y[k[i]], x[i]           ->        if x[i] > y[k[i]]: ties[k[i]] = 0; y[k[i]] = x[i]
                                                     elif x[i] == y[k[i]]: (the mean of those that tie)

Where iterations race, the winners are searched first (`passes.extremes`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ...analyses import concurrent_loop, find_owned, tasks_of
from ...ir import Names, NotCovered, nodes, straight_through, times, walk
from ..extremes import Beside, Change, Entry, Extreme, Index, Search, extremes_in, extremes_of, write_in_order
from ..polish import declare_locals, eliminate_dead_code, inline_sizes


@dataclass(frozen=True)
class WrittenOut:
    """A kernel without maxima and minima of some arrays.

    Attributes:
        kernel: the kernel; its arrays are those that it had, then what lies beside them.
        given: the kernel as it was.
        names: its names, and those that were added.
        beside: what must be 0 before the run, by name: the array that has the same sizes.
        room: arrays with one dim, by name: how long each has to be.
    """

    kernel: nodes.Kernel
    given: nodes.Kernel
    names: Names
    beside: Mapping[str, str] = field(default_factory=dict)
    room: Mapping[str, nodes.Expr] = field(default_factory=dict)

    @property
    def kernels(self) -> tuple[nodes.Kernel]:
        """The kernel."""
        return (self.kernel,)


def write_out_extremes(kernel: nodes.Kernel, arrays: Collection[str], names: Names) -> WrittenOut:
    """Write out maxima and minima of floats.

    Args:
        kernel: the kernel.
        arrays: those whose maxima and minima are written out.
        names: where what is added gets its names.

    Raises:
        NotCovered: winners of a parallel loop cannot be known without running all of it again.
    """
    if not extremes_in(kernel.body, arrays):
        return WrittenOut(kernel, kernel, names)
    # Sizes in place of locals that hold them, so that it is known before the launch how much room candidates need.
    return replace(_Writing(replace(kernel, body=inline_sizes(kernel.body)), arrays, names).result(), given=kernel)


class _Writing:
    def __init__(self, kernel: nodes.Kernel, arrays: Collection[str], names: Names) -> None:
        self.kernel, self.arrays, self.names = kernel, arrays, names
        self.beside: list[Beside] = []
        self.candidates: list[nodes.Array] = []
        self.room: dict[str, nodes.Expr] = {}

    def result(self) -> WrittenOut:
        kernel = self.kernel
        body = tuple([new for task in tasks_of(kernel.body) for new in self._task(task)])
        more = {one.name: one for one in (*(one.array for one in self.beside), *self.candidates)}
        like = {one.array.name: one.like for one in self.beside}
        cells = (*kernel.cells, *(name for name, array in like.items() if array in kernel.cells))
        kinds = {**kernel.locals, **self.names.types}
        # A loop that was taken apart may have left out the statement that declared a local.
        body = declare_locals(body, kinds)
        whole = replace(kernel, body=body, arrays={**kernel.arrays, **more}, locals=kinds, cells=cells)
        beside = {name: of for name, of in like.items() if of not in kernel.cells}
        return WrittenOut(whole, kernel, self.names, beside, self.room)

    def _task(self, task: nodes.Block) -> nodes.Block:
        # In order takes one pass and a search three, so only where iterations race.
        loop = concurrent_loop(task[0])
        raced = set() if loop is None else {one.array for one in extremes_in(loop.body, self.arrays)} - find_owned(loop)
        if loop is None or not raced:
            return self._in_order(task)
        plain = extremes_of(loop.body, raced)
        for one in walk.stores(loop.body):
            if one.array in raced - plain:
                raise self._make_refusal(
                    "a maximum or minimum of an array that the same parallel loop reads or changes in another way", one
                )
        return self._search_winners(Search(task, self.kernel, raced, self.names), loop)

    def _in_order(self, task: nodes.Block) -> nodes.Block:
        statements, beside = write_in_order(task, self.kernel.arrays, self.arrays, self.names)
        self.beside += beside
        return statements

    def _search_winners(self, search: Search, loop: nodes.For) -> nodes.Block:
        """Write the tangent of a loop with maxima or minima of arrays.

        Statements first find the winners, the candidates equal to the result; then the loop adds their tangents.
        """
        alone = search.again(lambda one: (one,))
        self._check_repeatable(search, alone, find_owned(loop))
        first = None
        if search.candidates is not None:
            # A tangent is one launch, which cannot count candidates first.
            most, iterations = search.most, search.iterations
            if most is None or iterations is None:
                return self._on_one_thread(search, loop, alone)
            first = times(search.place, most)
            self.candidates.append(search.candidates)
            self.room[search.candidates.name] = times(iterations, most)
        expansion = search.expand(first)
        self.beside += search.beside
        settle = [one for task in expansion.settle for one in task]
        return (*expansion.search, *settle, *self._in_order(expansion.gather), *search.over_all(_build_value))

    def _on_one_thread(self, search: Search, loop: nodes.For, alone: nodes.Block) -> nodes.Block:
        """Write the candidates of a parallel loop in order, where the winner is known at once.

        The rest of the task stays parallel: the gradient of a loop in order asks for all that the loop changes, which
        nobody has kept.
        """
        if search.copies:
            raise self._make_refusal(
                "a maximum or minimum in a parallel loop that changes elements that it reads", loop
            )
        raced = search.extremes.keys()
        rest = walk.rewrite(
            (loop,), lambda one: () if isinstance(one, nodes.Store | nodes.Atomic) and one.array in raced else (one,)
        )
        serial = tuple([replace(one, is_parallel=False) for one in alone if isinstance(one, nodes.For)])
        return (*self._in_order(eliminate_dead_code(rest)), *self._in_order(serial))

    def _check_repeatable(self, search: Search, alone: nodes.Block, own: Collection[str]) -> None:
        """Raise NotCovered for what a second run would find otherwise: random numbers, and what iterations race for."""
        raced = {copy for name, copy in search.copies.items() if name not in own}
        for one in walk.statements(alone[-1:]):
            is_raced = isinstance(one, nodes.Store | nodes.Atomic) and one.array in raced
            if isinstance(one, nodes.Draw) or (is_raced and isinstance(one, nodes.Atomic) and one.result is not None):
                raise self._make_refusal("a maximum or minimum in a parallel loop that cannot be run twice", one)
            if is_raced:
                raise self._make_refusal(
                    "a maximum or minimum in a parallel loop that changes elements that it reads", one
                )

    def _make_refusal(self, construct: str, one: nodes.Stmt) -> NotCovered:
        return NotCovered(f"the tangent of {construct}", one.line, self.kernel.path)


def _build_value(extreme: Extreme) -> Change:
    """Store what won, with the derivative of the sum of shares.

    The sum may have other last bits, and later statements may compare them.
    """
    name = extreme.array.name

    def change(index: Index, entry: Entry) -> list[nodes.Stmt]:
        total, winner = (extreme.load(one, index, entry) for one in (name, extreme.winner))
        return [nodes.Store(name, index, entry, straight_through(winner, total))]

    return change
