"""Preludes: what the reverse of a task takes from a kernel of its own, which runs just before it, on memory of its own.

So the winners of maxima and minima are known when the loop that adds their candidates is reversed: the search for them
(`extremes`) is a prelude. It is run for each launch by itself, so that a backward pass over many launches keeps the
winners of one at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ....ir import ZERO, Names, Type, nodes
from ..._slots import trips_of
from ...extremes import Beside, Expansion, Search, note_of
from ...polish import simplify
from .._program import Reserve, Run
from .._tapes import TapeSize, size_tape
from .._tasks import kernel_of


@dataclass(frozen=True)
class Prelude:
    """A kernel that runs before the reverse of a task.

    Attributes:
        kernel: the kernel; what it changes is memory of its own.
        beside: that memory.
        reserve: room for more of it.
        note: what is kept, in words.
    """

    kernel: nodes.Kernel
    beside: tuple[Beside, ...]
    reserve: Reserve | None
    note: str


def search_of(
    task: nodes.Block, kernel: nodes.Kernel, arrays: Collection[str], names: Names
) -> tuple[Prelude, Expansion, nodes.Kernel]:
    """Return the search for winners as a prelude, what is reversed in place of the task, and the kernel for that."""
    search = Search(task, kernel, arrays, names)
    writing = _Writing(search, kernel, names)
    keeps = search.candidates is not None
    expansion = search.expand(*(writing.find_slots() if keeps else ()))
    reserve = writing.reserve() if keeps else None
    prelude = Prelude(writing.build_kernel("winners", expansion.search), search.beside, reserve, note_of(search))
    whole = replace(kernel, arrays=writing.all_arrays, arguments=writing.arguments)
    return prelude, expansion, replace(whole, locals={**kernel.locals, **names.types})


class _Writing:
    """Writes the kernels of one prelude, and has room made for candidates."""

    def __init__(self, search: Search, kernel: nodes.Kernel, names: Names) -> None:
        self.search, self.kernel, self.names = search, kernel, names
        self.arrays, self.arguments = dict(kernel.arrays), dict(kernel.arguments)
        self.size: TapeSize | None = None

    @property
    def all_arrays(self) -> dict[str, nodes.Array]:
        """Return every array that its kernels, or what is reversed, may use."""
        return {**self.arrays, **{one.array.name: one.array for one in self.search.beside}}

    def find_slots(self) -> tuple[nodes.Expr, nodes.Expr | None]:
        """Return where the candidates of an iteration start, and how many were counted; None if all have equal room."""
        candidates = self.search.candidates
        assert candidates is not None
        self.arrays[candidates.name] = candidates
        tape = ((candidates.name, candidates.type, 1),)
        self.size = size_tape(self.names, "candidates", tape, self.search.most)
        place, starts = self.search.place, self.size.starts
        return self.size.first_entry(place), None if starts is None else nodes.Load(starts[1], (place,), (), Type.I32)

    def reserve(self) -> Reserve:
        """Return the reservation of memory for candidates, with the runs that measure how much is needed."""
        assert self.size is not None
        iterations, total = self.search.iterations, self.names.reserve_shared("iterations")
        plain = Reserve((self.size,), ZERO, total, None)
        self.arrays |= plain.arrays
        self.arguments |= plain.arguments
        # The assembly sets the launch and the memory of these runs (`Assembly.assign_memory`).
        measured = iterations if iterations is not None else Run(self._build_measuring_kernel(total), 0, {})
        count = None if self.size.starts is None else Run(self._counting(self.size.starts[1]), 0, {})
        return replace(plain, iterations=measured, count=count)

    def _build_measuring_kernel(self, total: str) -> nodes.Kernel:
        """Build the kernel that stores how many parallel iterations there are."""
        assert self.search.loop is not None
        return self.build_kernel("iterations", [nodes.Store(total, (), (), trips_of(self.search.loop.bounds))])

    def _counting(self, count: str) -> nodes.Kernel:
        """Build the kernel that counts candidates. It stores the count at each change, so that no `break` misses it."""
        counter = self.search.counter
        store = nodes.Store(count, (self.search.place,), (), nodes.Local(counter, Type.I32))
        begun = (nodes.Assign(counter, ZERO),)
        body = self.search.again(lambda _: (), begun, lambda one: (one, store) if _gives(one, counter) else (one,))
        return self.build_kernel("count_candidates", body)

    def build_kernel(self, word: str, body: Sequence[nodes.Stmt]) -> nodes.Kernel:
        """Build a kernel with the arrays and arguments that its statements use."""
        kinds = {**self.kernel.locals, **self.names.types}
        # Each statement is simplified by itself, which gives the shorter text.
        statements = [new for one in body for new in simplify([one], kinds)]
        name = self.names.reserve_shared(f"{self.kernel.name}_{word}")
        return kernel_of(replace(self.kernel, locals=kinds), name, statements, self.all_arrays, self.arguments)


def _gives(one: nodes.Stmt, local: str) -> bool:
    return isinstance(one, nodes.Assign) and one.name == local
