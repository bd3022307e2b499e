"""Loop-carried dependences of a parallel loop: an iteration stores what another one reads, in no order.

`y[i] = y[i - 1] + x[i]` has no derivative in a parallel loop, as its result depends on the order of the iterations.
Only what is certain is found: indices that differ by a distance, in iterations that both exist for arrays that are
large enough, or one element that all iterations read and then store to, `y[0] = y[0] + x[i]`. Where a guard may keep
iterations apart (`i % 2 == 0`, `mask[i]`), or indices are read from memory, nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...source import AffineIndex
from ...source.ir import NotCovered, Race, nodes, operators, types
from .._names import Names
from ..analysis import affine, definitions, is_invariant, single_definitions, whole_definitions
from ._ssa import BranchArm, Step, accesses, parallel_loop


class _Limit(NamedTuple):
    """`sign` times a loop variable is at least `least`; without a sign, it is any number but one."""

    variable: str
    sign: int
    least: AffineIndex


@dataclass(frozen=True)
class _Reached:
    """An access, and what is known of the iterations that reach it."""

    of: nodes.Load | nodes.Store | nodes.Atomic
    line: int
    index: tuple[AffineIndex, ...]
    limits: tuple[_Limit, ...]


def find_races(
    kernel: nodes.Kernel, steps: Sequence[Step], own: Collection[str], names: Names
) -> dict[str, NotCovered]:
    """Arrays of floats in which parallel iterations certainly race, each with the refusal that names two accesses.

    Args:
        kernel: the kernel of the task.
        steps: the task in form.
        own: arrays no element of which two iterations touch.
        names: tells what locals are called in the kernel.
    """
    loop = parallel_loop(steps)
    if loop is None:
        return {}
    search = _Search(steps, loop)
    called = {name: kernel.source_name(names.root(name)) for name in loop.names}
    races: dict[str, NotCovered] = {}
    reached = [*search.find_reached()]
    loads = [one for one in reached if isinstance(one.of, nodes.Load)]
    for place, change in enumerate(reached):
        array = change.of.array
        if isinstance(change.of, nodes.Load) or array in races or array in own:
            continue
        load = next((one for one in loads if one.of.array == array and search.is_race(change, one)), None)
        # A load after the store may be of a value that all iterations store alike.
        before = (one for one in reached[:place] if isinstance(one.of, nodes.Load) and one.of.array == array)
        load = load or next((one for one in before if search.is_shared_update(change, one)), None)
        if load is not None and types.is_float(kernel.arrays[array].type):
            change_text, load_text = (_text(one, kernel.source_name(array), called) for one in (change, load))
            race = Race(change_text, change.line, load_text, load.line)
            words = f"`{race.read}`, which another iteration of the parallel loop changes"
            races[array] = NotCovered(words, change.line, kernel.path, race)
    return races


class _Search:
    """Looks for races among the accesses of a parallel loop."""

    def __init__(self, steps: Sequence[Step], loop: nodes.Loop) -> None:
        self.loop = loop
        self.whole = whole_definitions(definitions(steps))
        self.definitions = single_definitions(definitions(steps))

    def find_reached(self) -> Iterator[_Reached]:
        """The accesses that are certainly reached, each with the limits of the iterations that do."""
        pairs = zip(self.loop.names, self.loop.bounds, strict=True)
        ends = ((name, affine(first, self.whole), affine(end, self.whole)) for name, (first, end) in pairs)
        bounds = tuple(limit for name, first, end in ends for limit in _between(name, first, end))
        for one in accesses(self.loop.body):
            guards = [*map(self.limits_of, one.around)]
            if None not in guards:
                limits = (*bounds, *(limit for guard in guards for limit in guard or ()))
                yield _Reached(one.of, one.line, tuple([affine(part, self.whole) for part in one.of.index]), limits)

    def limits_of(self, around: nodes.Loop | BranchArm) -> tuple[_Limit, ...] | None:
        """What it says of iterations that an access is reached in a loop or an arm; None where it may not be."""
        if isinstance(around, BranchArm):
            return self.guard(around.condition, around.holds)
        is_entered = around.exit is None and around.names and all(map(self.has_iterations, around.bounds))
        return () if is_entered else None

    def has_iterations(self, bounds: tuple[nodes.Expr, nodes.Expr]) -> bool:
        first, end = (affine(one, self.whole) for one in bounds)
        return _is_attainable(end.plus(first, -1).plus(AffineIndex(constant=-1)))

    def guard(self, condition: nodes.Expr, is_met: bool) -> tuple[_Limit, ...] | None:
        """What a condition says of loop variables; None where it says anything else too."""
        match condition:
            case nodes.Local(name) if name in self.definitions:
                return self.guard(self.definitions[name], is_met)
            case nodes.Binary("and" | "or" as operator, left, right) if (operator == "and") == is_met:
                both = self.guard(left, is_met), self.guard(right, is_met)
                return None if both[0] is None or both[1] is None else both[0] + both[1]
            case nodes.Binary(operator, left, right) if operator in operators.OPPOSITE and _are_whole(left, right):
                gap = affine(left, self.whole).plus(affine(right, self.whole), -1)
                return self.limit(operator if is_met else operators.OPPOSITE[operator], gap)
        return None

    def limit(self, operator: str, gap: AffineIndex) -> tuple[_Limit, ...] | None:
        """What `gap operator 0` says of the one loop variable in it."""
        variables = [(atom, factor) for atom, factor in gap.terms.items() if atom in self.loop.names]
        if len(variables) != 1 or abs(variables[0][1]) != 1:
            return None
        ((variable, factor),) = variables
        rest, one = gap.plus(AffineIndex({variable: factor}), -1), AffineIndex(constant=1)
        if not all(map(is_invariant, rest.terms)):
            return None
        match operator:
            case ">" | ">=":
                least = rest.times(-1)
                return (_Limit(variable, factor, least.plus(one) if operator == ">" else least),)
            case "<" | "<=":
                return (_Limit(variable, -factor, rest.plus(one) if operator == "<" else rest),)
            case "!=":
                return (_Limit(variable, 0, rest),)
        return None

    def is_race(self, change: _Reached, load: _Reached) -> bool:
        """Whether one iteration certainly changes what another reads."""
        distances = self.distances(change, load)
        if not distances or all(one.number == 0 for one in distances.values()):
            return False
        # A store at an argument's distance, `y[i] = y[i + k]`, is one of whole segments for k that are large enough. An
        # atomic's order decides over its result.
        if isinstance(change.of, nodes.Store) and any(one.number is None for one in distances.values()):
            return False
        return all(self.may_both_run(change, load, *one) for one in distances.items())

    def is_shared_update(self, change: _Reached, load: _Reached) -> bool:
        """Whether iterations that differ in a variable outside the index read one element and then store to it."""
        distances = self.distances(change, load)
        if distances is None or not isinstance(change.of, nodes.Store):
            return False
        if any(one.number != 0 for one in distances.values()):
            return False
        missing = (name for name in self.loop.names if name not in distances)
        return any(self.may_both_run(change, load, name, AffineIndex(constant=1)) for name in missing)

    def distances(self, change: _Reached, load: _Reached) -> dict[str, AffineIndex] | None:
        """How much later, in each loop variable, the iteration is that changes what one reads; None if unknown."""
        if change.of.entry != load.of.entry or len(change.index) != len(load.index):
            return None
        distances: dict[str, AffineIndex] = {}
        for mine, theirs in zip(change.index, load.index, strict=True):
            moving = [(atom, factor) for atom, factor in mine.terms.items() if atom in self.loop.names]
            gap = theirs.plus(mine, -1)
            others = {*mine.terms, *theirs.terms} - {atom for atom, _ in moving}
            if len(moving) > 1 or not all(map(is_invariant, {*others, *gap.terms})):
                return None
            if not moving:
                if gap.number != 0:
                    return None
                continue
            ((variable, factor),) = moving
            if gap.constant % factor or any(count % factor for count in gap.terms.values()):
                return None
            terms = {atom: count // factor for atom, count in gap.terms.items()}
            distance = AffineIndex(terms, gap.constant // factor)
            if distances.setdefault(variable, distance) != distance:
                return None
        return distances

    def may_both_run(self, change: _Reached, load: _Reached, variable: str, distance: AffineIndex) -> bool:
        """Whether there is an iteration that makes the change, and the one at a distance before it that reads."""
        limits = [one for one in change.limits if one.variable == variable]
        theirs = (one for one in load.limits if one.variable == variable)
        limits += [one._replace(least=one.least.plus(distance, one.sign)) for one in theirs]
        holes = AffineIndex(constant=sum(not one.sign for one in limits))
        pairs = ((low.least, high.least) for low in limits for high in limits if low.sign > 0 > high.sign)
        # From `low` to `-high`, both included: there must be more numbers than guards leave out.
        return all(_is_attainable(low.plus(high).plus(holes).times(-1)) for low, high in pairs)


def _between(variable: str, first: AffineIndex, end: AffineIndex) -> Iterator[_Limit]:
    """A range as two limits."""
    yield _Limit(variable, 1, first)
    yield _Limit(variable, -1, end.times(-1).plus(AffineIndex(constant=1)))


def _is_attainable(room: AffineIndex) -> bool:
    """Whether a sum is at least 0 for arrays that are large enough, whatever the arguments are then.

    Of arguments alone it must be a growing function: `range(k)` has a second iteration for some k, while
    of `n - 2 * k` nothing is known.
    """
    sizes = [count for atom, count in room.terms.items() if isinstance(atom, nodes.Size)]
    others = [count for atom, count in room.terms.items() if not isinstance(atom, nodes.Size)]
    if not all(map(is_invariant, room.terms)) or any(count < 0 for count in sizes):
        return False
    if sizes:
        return True
    return all(count > 0 for count in others) if others else room.constant >= 0


def _are_whole(*operands: nodes.Expr) -> bool:
    return all(one.type in ("i32", "i64") for one in operands)


def _text(access: _Reached, array: str, names: Mapping[str, str]) -> str:
    """An access as it may stand in the source: `y[i - 1]`."""
    entry = "".join(f"[{one}]" for one in access.of.entry)
    index = ", ".join(one.text(lambda atom: _atom(atom, names)) for one in access.index)
    return f"{array}[{index}]{entry}"


def _atom(atom: str | nodes.Expr, names: Mapping[str, str]) -> str:
    match atom:
        case str():
            return names[atom]
        case nodes.Argument(name):
            return name
        case nodes.Size(array, axis):
            return f"{array}.shape[{axis}]"
    raise AssertionError(atom)
