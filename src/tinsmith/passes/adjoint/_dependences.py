"""Dependences between the uses of an array in a task: what is written after it was read, and what only once.

The reverse reads what the forward pass read, so it needs what was overwritten; and it clears the adjoint of what was
stored, for whatever used the element before. It does without where the indices tell that there is no such use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...analyses import affine, definitions, is_invariant, whole_definitions
from ...ir import AffineIndex, EnclosingLoop, PartialIndexMap, each_moves_an_axis, may_overwrite, nodes, walk
from ._ssa import Step, accesses
from ._tasks import parts_of

MANY = 256
"""Different indices of an array beyond which they are not compared with each other."""


@dataclass(frozen=True)
class _Use:
    """A load or change of an element, with the loops around it and its place in the text."""

    of: nodes.Load | nodes.Store | nodes.Atomic
    index: tuple[AffineIndex, ...]
    loops: tuple[EnclosingLoop, ...]
    order: int
    task: int = 0
    is_own: bool = False

    @property
    def is_elsewhere_each_time(self) -> bool:
        """Return True if no two iterations use one element: every loop variable moves an axis of its own.

        Where parallel iterations are known to use different elements (`is_own`), the loops inside have to.
        """
        loops = [loop for loop in self.loops if not (self.is_own and loop.is_parallel)]
        names = [name for loop in loops for name in loop.variables]
        # A `while` has no variable that could move an axis.
        is_counted = all(loop.variables for loop in loops)
        return is_counted and each_moves_an_axis(names, [self.index], is_invariant)

    def never_meets(self, other: _Use) -> bool:
        """Return True if two uses are of different elements, in whichever iterations."""
        pairs = zip(self.index, other.index, strict=False)
        return self.of.entry != other.of.entry or any(one.never_equals(two, is_invariant) for one, two in pairs)


def _uses_by_array(steps: Sequence[Step], task: int = 0, own: Collection[str] = frozenset()) -> dict[str, list[_Use]]:
    """Return all uses of each array by a task. Two parallel iterations use no common element of an array in `own`."""
    uses: dict[str, list[_Use]] = {}
    known = whole_definitions(definitions(steps))
    for order, one in enumerate(accesses(steps)):
        index = tuple([affine(part, known) for part in one.of.index])
        loops = tuple(inner for loop in one.around if isinstance(loop, nodes.Loop) for inner in _enclosing(loop))
        uses.setdefault(one.of.array, []).append(_Use(one.of, index, loops, order, task, one.of.array in own))
    return uses


def _enclosing(loop: nodes.Loop) -> Iterator[EnclosingLoop]:
    """Yield a loop as a nest of loops over a name each: the last of several names is the innermost."""
    for at, names in enumerate([(name,) for name in loop.names] or [()]):
        yield EnclosingLoop(f"{loop.number} {at}", names, bool(names), loop.is_parallel)


# Written after it was read ----------------------------------------------------------------------------


def never_overwritten_after_read(steps: Sequence[Step], arrays: Collection[str]) -> frozenset[str]:
    """Return the arrays whose elements are never written after they were read: `x[t + 1, i]` from `x[t, i]`.

    What is read then is what is there in the end, so the reverse needs no copy of such an array, and keeps nothing of
    what is overwritten.

    Args:
        steps: what one thread runs: the body of a parallel loop, or a serial task.
        arrays: those whose elements no other thread touches.
    """
    return _without(steps, arrays, lambda change, load: may_overwrite(change, load, is_invariant))


def never_written_where_read(steps: Sequence[Step], arrays: Collection[str]) -> frozenset[str]:
    """Return the arrays from which no thread loads an element that any thread stores to: `x[t, i - 1]` is never
    `x[t + 1, i]`.

    Args:
        steps: what one thread runs.
        arrays: any that it loads and stores.
    """
    return _without(steps, arrays, lambda change, load: True)


def _without(
    steps: Sequence[Step], arrays: Collection[str], is_dependence: Callable[[_Use, _Use], bool]
) -> frozenset[str]:
    """Return those of the arrays that have no atomic, and no store and load that may meet and are a dependence."""

    def has_none(uses: Sequence[_Use]) -> bool:
        loads = [one for one in uses if isinstance(one.of, nodes.Load)]
        stores = [one for one in uses if isinstance(one.of, nodes.Store)]
        pairs = ((store, load) for load in loads for store in stores if not store.never_meets(load))
        # An atomic is neither, and then nothing is claimed: it reads and
        # writes at once, in an order that only a run knows.
        return len(loads) + len(stores) == len(uses) and not any(is_dependence(*pair) for pair in pairs)

    uses_by_array = _uses_by_array(steps)
    return frozenset(name for name in arrays if has_none(uses_by_array.get(name, ())))


# Written once -----------------------------------------------------------------------------------------


def find_written_once(
    tasks: Sequence[Sequence[Step]],
    own: Sequence[Collection[str]],
    kept: Collection[str] = (),
    repeated: Collection[int] = (),
) -> frozenset[int]:
    """Return the numbers of stores to elements that nothing wrote or read before: their adjoint need not be cleared.

    Args:
        tasks: the steps of each, in the order in which they run.
        own: for each, arrays without an element that two parallel iterations use.
        kept: arrays whose adjoint from before all tasks is needed afterwards.
        repeated: numbers of tasks that run again later: what they store to may have been used the time before.
    """
    uses: dict[str, list[_Use]] = {}
    for number, (steps, arrays) in enumerate(zip(tasks, own, strict=True)):
        for name, array_uses in _uses_by_array(steps, number, arrays).items():
            uses.setdefault(name, []).extend(array_uses)
    chosen = (array_uses for name, array_uses in uses.items() if name not in kept)
    return frozenset(number for array_uses in chosen for number in _firsts(array_uses, repeated))


def _firsts(uses: Sequence[_Use], repeated: Collection[int]) -> Iterator[int]:
    """Yield, of the uses of one array, the numbers of stores before which nothing uses the element."""
    # Each store is compared with each use before it, which would be slow for a kernel with unrolled loops.
    # To claim nothing is safe: the adjoint is cleared.
    if len({(use.of.index, use.of.entry) for use in uses}) > MANY:
        return
    for one in uses:
        if isinstance(one.of, nodes.Store) and one.is_elsewhere_each_time and one.task not in repeated:
            # Inside a task every use counts as earlier, wherever it stands: another iteration may have come first.
            before = (other for other in uses if other is not one and other.task <= one.task)
            if all(map(one.never_meets, before)):
                yield one.of.number


# Over many launches -----------------------------------------------------------------------------------

Unchanged = tuple[int, int, str, bool]
"""What `find_unchanged_after` finds."""
_Axes = Mapping[int, AffineIndex]
"""Of an index, the axes that constants and arguments alone decide."""


def find_unchanged_after(
    kernels: Sequence[nodes.Kernel], launches: Sequence[int], numbers: Sequence[Mapping[str, int]]
) -> frozenset[Unchanged]:
    """Find, for each task of each launch, the arrays whose elements no later task changes after this one read them.

    A result is the place of the launch, the number of the task, the array, and whether the task itself does not change
    what it reads either.

    `x[t, i]`, where every launch has a time of its own: the array as it was left in the end holds still what a launch
    read, and nobody has to copy it or to run the launches before again.

    Args:
        kernels: those that are launched.
        launches: for each launch the number of its kernel.
        numbers: for each launch the values of the kernel's integer arguments.
    """
    tasks = [[_axes_by_array(task) for task in parts_of(kernel).tasks] for kernel in kernels]
    later: dict[str, PartialIndexMap] = {}
    unchanged: set[Unchanged] = set()

    def changes(array: str, known: Mapping[int, int]) -> bool:
        return array in later and any(True for _ in later[array].meeting(known))

    # From the last launch to the first, so that `later` has the changes of all tasks that run after this one.
    for place in reversed(range(len(launches))):
        kinds = kernels[launches[place]].arguments
        given = ((name, number) for name, number in numbers[place].items() if name in kinds)
        values = {nodes.Argument(name, kinds[name][0]): number for name, number in given}
        for part, (loads, stores) in reversed(list(enumerate(tasks[launches[place]]))):
            read = [(array, _evaluate_axes(axes, values)) for array, axes in loads]
            kept = {array for array, _ in read} - {array for array, known in read if changes(array, known)}
            # Its own changes are not later ones for itself, so they are added after `kept` and before `own`.
            for array, axes in stores:
                known = _evaluate_axes(axes, values)
                later.setdefault(array, PartialIndexMap()).add(tuple(known.items()), known, True)
            own = {array for array, known in read if array in kept and changes(array, known)}
            unchanged |= {(place, part, array, array not in own) for array in kept}
    return frozenset(unchanged)


def _evaluate_axes(axes: _Axes, values: Mapping[nodes.Argument, int]) -> dict[int, int]:
    numbers = {axis: index.value(values) for axis, index in axes.items()}
    return {axis: number for axis, number in numbers.items() if number is not None}


def _axes_by_array(task: nodes.Block) -> tuple[list[tuple[str, _Axes]], list[tuple[str, _Axes]]]:
    """Return what a task loads and what it changes, as pairs of an array and the axes of an index that may be known."""
    known = whole_definitions(definitions(task))

    def pairs(accesses: Iterable[nodes.Load | nodes.Store | nodes.Atomic]) -> list[tuple[str, _Axes]]:
        return [(array, axes(index)) for array, index in dict.fromkeys((one.array, one.index) for one in accesses)]

    def axes(index: Sequence[nodes.Expr]) -> _Axes:
        sums = enumerate(affine(one, known) for one in index)
        return {axis: one for axis, one in sums if all(isinstance(atom, nodes.Argument) for atom in one.terms)}

    stores = list(walk.stores(task))
    # An atomic whose old value is used reads the element, too.
    fetched = (one for one in stores if isinstance(one, nodes.Atomic) and one.result is not None)
    return pairs((*walk.loads(task), *fetched)), pairs(stores)
