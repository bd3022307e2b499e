"""Chains that are run backwards: what an iteration was handed, worked out from what it hands on.

A transmittance `T = T * (1 - a)` needs no tape where `a` does not depend on `T`: the reverse divides. That is safe where

- the factor is bounded away from zero, by a clamp for instance: a division by 0.01 loses two digits, one by 0 all;
- the product neither grows nor becomes too small to hold its digits, as a loop sees to that stops below a number.

Both must follow from the text, by the ranges of its values on every path through an iteration (`_Path`). Else there is
a tape. Differences `s - w` are never safe: after a large term nothing is left of the small ones before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...source.ir import nodes, walk
from .._algebra import over, times
from .._names import Names
from ..analysis import Range, Ranges
from ._form import Branch, Carried, Loop, Step, locals_read, loads_in, steps_in, stores_in

LEAST_FACTOR = 2.0**-10
"""A factor that is smaller takes too many of a number's digits."""
LEAST_VALUE = {"f32": 1e-30, "f64": 1e-280}
"""Below this a number loses digits, and a product of it that comes later may be 0."""
MOST_PATHS = 64
Block = list[nodes.Stmt]


@dataclass(frozen=True)
class Inverse:
    """A chain that can be run backwards.

    Attributes:
        carried: what the loop hands on.
        now: the local that holds what the iteration handed on, and then what it was handed.
        type: of both.
        statements: they give the head its value, from `now` and what does not depend on a head.
    """

    carried: Carried
    now: str
    type: str
    statements: tuple[nodes.Stmt, ...]


def inverses_of(
    loop: Loop, needed: Collection[str], names: Names, state: Collection[str], known: Mapping[str, Sequence[nodes.Expr]]
) -> list[Inverse]:
    """Of the chains whose heads are needed, those that can be run backwards.

    Args:
        loop: the loop.
        needed: names of heads.
        names: gives names to locals.
        state: arrays whose elements change while the frame runs: what is read from them cannot be moved about.
        known: definitions of all locals of the task.
    """
    touched = {one.array for one in (*loads_in(loop.body), *stores_in(loop.body))}
    chains = [one for one in loop.carried if one.head in needed and names.types[one.head] in LEAST_VALUE]
    if not touched.isdisjoint(state):
        return []
    while chains:
        bound = dependents(loop.body, [one.head for one in chains])
        found = [_invert(loop, one, bound, names, known) for one in chains]
        inverted = [one for one in found if one is not None]
        if len(inverted) == len(chains):
            return inverted
        chains = [one.carried for one in inverted]
    return []


def dependents(body: Sequence[Step], heads: Collection[str]) -> frozenset[str]:
    """Locals that depend on what an iteration is handed: by their values, or by a branch that they stand in."""
    found = set(heads)
    _collect_dependents(body, found, is_bound=False)
    return frozenset(found)


def _collect_dependents(body: Sequence[Step], found: set[str], *, is_bound: bool) -> None:
    for step in body:
        here = is_bound or not found.isdisjoint(locals_read(step))
        if isinstance(step, Branch):
            for arm in (step.body, step.orelse):
                _collect_dependents(arm, found, is_bound=here)
        elif isinstance(step, Loop):
            here = here or any(not found.isdisjoint(locals_read(one)) for one in steps_in(step.body))
            if here:
                found.update(one.last for one in step.carried)
        elif here:
            found.update(walk.assigned(step))


def split_steps(body: Sequence[Step], bound: Collection[str]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Steps that do not depend on these locals, and those that do: a branch may have both."""
    free: list[Step] = []
    rest: list[Step] = []
    for step in body:
        reads = locals_read(step)
        if isinstance(step, Branch) and reads.isdisjoint(bound):
            arms = [split_steps(arm, bound) for arm in (step.body, step.orelse)]
            for target, place in ((free, 0), (rest, 1)):
                if arms[0][place] or arms[1][place]:
                    target.append(replace(step, body=arms[0][place], orelse=arms[1][place]))
            continue
        inside = {name for one in steps_in([step]) for name in locals_read(one)}
        (free if inside.isdisjoint(bound) and not _changes_memory(step) else rest).append(step)
    return tuple(free), tuple(rest)


def _changes_memory(step: Step) -> bool:
    return any(True for _ in stores_in([step]))


def _invert(
    loop: Loop, carried: Carried, bound: frozenset[str], names: Names, known: Mapping[str, Sequence[nodes.Expr]]
) -> Inverse | None:
    kind = names.types[carried.head]
    now = names.fresh(carried.head, kind)
    if not isinstance(carried.next, nodes.Local) or not _is_safe(loop, carried, bound, known, kind):
        return None
    undoing = _Undoing(bound, names)
    values = undoing.block(loop.body, {carried.next.name: nodes.Local(now, kind)})
    if values is None or values.keys() != {carried.head}:
        return None
    return Inverse(carried, now, kind, (*undoing.statements, nodes.Assign(carried.head, values[carried.head], loop.line)))


@dataclass
class _Undoing:
    """Goes through an iteration backwards with the value of the chain."""

    bound: frozenset[str]
    names: Names
    statements: Block = field(default_factory=list)

    def block(self, body: Sequence[Step], values: dict[str, nodes.Expr]) -> dict[str, nodes.Expr] | None:
        """The chain's value before steps by its name there, from the one after them; None where it is not to be had."""
        for step in reversed(body):
            found: dict[str, nodes.Expr] | None = values
            if isinstance(step, nodes.Assign) and step.name in values:
                found = self.assigned(step, values[step.name])
            elif isinstance(step, Branch):
                found = self.branched(step, values)
            elif not values.keys().isdisjoint(_given(step)):
                return None
            if found is None:
                return None
            values = found
        return values

    def assigned(self, step: nodes.Assign, value: nodes.Expr) -> dict[str, nodes.Expr] | None:
        before = _factor(step.value, self.bound)
        if before is None:
            return None
        name, operator, factor = before
        if factor is None:
            return {name: value}
        undone = over(value, factor) if operator == "*" else times(value, factor)
        local = self.names.local(name, value.type)
        self.statements.append(nodes.Assign(local.name, undone, step.line))
        return {name: local}

    def branched(self, step: Branch, values: dict[str, nodes.Expr]) -> dict[str, nodes.Expr] | None:
        if values.keys().isdisjoint(_given(step)):
            return values
        outer, arms, ends = self.statements, [], []
        for part in (step.body, step.orelse):
            self.statements = []
            ends.append(self.block(part, dict(values)))
            arms.append(self.statements)
        self.statements = outer
        one, other = ends
        if one is None or other is None or one.keys() != other.keys() or not locals_read(step).isdisjoint(self.bound):
            return None
        (name,) = one
        local = self.names.local(name, one[name].type)
        for arm, end in zip(arms, (one, other), strict=True):
            arm.append(nodes.Assign(local.name, end[name], step.line))
        self.statements.append(nodes.If(step.condition, tuple(arms[0]), tuple(arms[1]), step.line))
        return {name: local}


def _given(step: Step) -> set[str]:
    """Locals that a step gives values, and those inside it."""
    found: set[str] = set()
    for one in steps_in([step]):
        if isinstance(one, Loop):
            found.update(carried.last for carried in one.carried)
        elif not isinstance(one, Branch):
            found.update(walk.assigned(one))
    return found


def _factor(expr: nodes.Expr, bound: Collection[str]) -> tuple[str, str, nodes.Expr | None] | None:
    """The value of the chain that an expression is made of, and how: times or over what does not depend on a head."""
    match expr:
        case nodes.Local(name):
            return name, "", None
        case nodes.Binary("*" | "/" as operator, nodes.Local(name, kind), factor) if name in bound:
            sides = [(name, kind, factor)]
        case nodes.Binary("*" as operator, factor, nodes.Local(name, kind)) if name in bound:
            sides = [(name, kind, factor)]
        case _:
            return None
    ((name, kind, factor),) = sides
    is_free = walk.locals_in([factor]).isdisjoint(bound) and not _loads(factor)
    return (name, operator, factor) if is_free and kind == factor.type == expr.type else None


def _loads(expr: nodes.Expr) -> bool:
    return any(isinstance(part, nodes.Load) for part in walk.parts(expr))


# Safety -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Path:
    """One way through an iteration, as far as it has come.

    Attributes:
        ranges: of values, by what its branches asked.
        shrinks: for each value of the chain, how small a part of the head it may be.
        floors: numbers below which values of the chain are not, as the branches asked.
        truths: locals that are known to be true or false.
    """

    ranges: Ranges
    shrinks: Mapping[str, float]
    floors: Mapping[str, float]
    truths: Mapping[str, bool]

    def with_value(self, name: str, source: str, least: float) -> _Path:
        """A further value of the chain: at least this part of another one."""
        shrinks = {**self.shrinks, name: self.shrinks[source] * least}
        return replace(self, shrinks=shrinks, floors={**self.floors, name: self.floors.get(source, 0.0) * least})


def _is_safe(
    loop: Loop,
    carried: Carried,
    bound: frozenset[str],
    known: Mapping[str, Sequence[nodes.Expr]],
    kind: str,
) -> bool:
    """Whether a positive chain of factors from `LEAST_FACTOR` to 1 stays above what its type can hold."""
    assert isinstance(carried.next, nodes.Local)
    start = Ranges(known).of(carried.first)
    if start.low <= 0.0 or start.high > 1e30:
        return False
    begun = _Path(Ranges(known), {carried.head: 1.0}, {}, {})
    paths = _Walking(bound, carried).through(loop.body, [begun])
    if paths is None:
        return False
    least, ends = start.low, []
    for path in paths:
        if carried.next.name not in path.shrinks:
            return False
        shrink, floor = path.shrinks[carried.next.name], path.floors.get(carried.next.name, 0.0)
        ends.append((shrink, floor))
        leaves = loop.exit is not None and path.truths.get(loop.exit) is True
        if shrink < 1.0 and not leaves:
            least = min(least, floor)
    return all(max(floor, least * shrink) >= LEAST_VALUE[kind] for shrink, floor in ends)


@dataclass
class _Walking:
    """Follows every path through an iteration that matters to a chain, or to whether the loop goes on."""

    bound: frozenset[str]
    carried: Carried

    def through(self, body: Sequence[Step], paths: list[_Path]) -> list[_Path] | None:
        """The paths after steps; None where they are too many, or a factor may be too small or too large."""
        for step in body:
            found: list[_Path] = []
            for path in paths:
                more = self.step(step, path)
                if more is None:
                    return None
                found += more
            if len(found) > MOST_PATHS:
                return None
            paths = found
        return paths

    def step(self, step: Step, path: _Path) -> list[_Path] | None:
        if isinstance(step, Branch):
            return self.branch(step, path)
        if isinstance(step, nodes.Assign):
            return self.assign(step, path)
        return [path]

    def assign(self, step: nodes.Assign, path: _Path) -> list[_Path] | None:
        match step.value:
            case nodes.Const(bool() as value):
                return [replace(path, truths={**path.truths, step.name: value})]
            case nodes.Local(name) if name in path.truths:
                return [replace(path, truths={**path.truths, step.name: path.truths[name]})]
            case nodes.Local(name) if name in path.shrinks:
                return [path.with_value(step.name, name, 1.0)]
        source = _factor(step.value, self.bound)
        if source is None or source[0] not in path.shrinks or source[2] is None:
            return [path]
        factor = path.ranges.of(source[2])
        part = factor if source[1] == "*" else Range(1 / factor.high, 1 / factor.low) if factor.low > 0 else Range()
        if part.low < LEAST_FACTOR or part.high > 1.0:
            return [path]  # no value of the chain: where it is handed on, the chain is not safe
        return [path.with_value(step.name, source[0], part.low)]

    def branch(self, step: Branch, path: _Path) -> list[_Path] | None:
        truth = self.truth(step.condition, path)
        found: list[_Path] = []
        for holds, arm in ((True, step.body), (False, step.orelse)):
            if truth in (None, holds):
                more = self.through(arm, [self.taken(step.condition, path, holds=holds)])
                if more is None:
                    return None
                found += more
        return found

    def truth(self, condition: nodes.Expr, path: _Path) -> bool | None:
        match condition:
            case nodes.Const(value):
                return bool(value)
            case nodes.Local(name):
                return path.truths.get(name)
            case nodes.Unary("not", value):
                inner = self.truth(value, path)
                return None if inner is None else not inner
        return None

    def taken(self, condition: nodes.Expr, path: _Path, *, holds: bool) -> _Path:
        """A path that has taken an arm."""
        ranges = path.ranges.assuming(condition, holds=holds)
        floors = {name: max(path.floors.get(name, 0.0), ranges.assumed(name).low) for name in path.shrinks}
        truths = {**path.truths, condition.name: holds} if isinstance(condition, nodes.Local) else path.truths
        return replace(path, ranges=ranges, floors=floors, truths=truths)
