"""Paths through an iteration: what each knows of a chain of factors, and whether the loop goes on after it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ...analyses import Range, Ranges
from ...ir import Operator, Type, nodes, types, walk
from ._ssa import Step

LEAST_FACTOR = 2.0**-10
"""A factor that is smaller takes too many of a number's digits."""
LEAST_VALUE = {Type.F32: 1e-30, Type.F64: 1e-280}
"""Below this a number loses digits, and a product of it that comes later may be 0."""
MOST_PATHS = 64


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
        """Return the path with one more value of the chain, which is at least `least` times the value `source`."""
        shrinks = {**self.shrinks, name: self.shrinks[source] * least}
        return replace(self, shrinks=shrinks, floors={**self.floors, name: self.floors.get(source, 0.0) * least})


def keeps_digits(
    loop: nodes.Loop,
    carried: nodes.CarriedLocal,
    bound: frozenset[str],
    known: Mapping[str, Sequence[nodes.Expr]],
    kind: Type,
) -> bool:
    """Return True if a positive chain with factors between `LEAST_FACTOR` and 1 stays at `LEAST_VALUE` or above."""
    assert isinstance(carried.next, nodes.Local)
    start = Ranges(known).of(carried.first)
    # A division cannot restore a 0, nor what has overflowed in float32, which ends at 3.4e38.
    if start.low <= 0.0 or start.high > 1e30:
        return False
    paths = _Walking(bound).through(loop.body, [_Path(Ranges(known), {carried.head: 1.0}, {}, {})])
    if paths is None:
        return False
    least, ends = start.low, []
    for path in paths:
        if carried.next.name not in path.shrinks:
            return False
        shrink, floor = path.shrinks[carried.next.name], path.floors.get(carried.next.name, 0.0)
        ends.append((shrink, floor))
        # No iteration comes after a path that ends the loop, so its product may be as small as one factor makes it.
        leaves = loop.exit is not None and path.truths.get(loop.exit.name) is True
        if shrink < 1.0 and not leaves:
            least = min(least, floor)
    return all(max(floor, least * shrink) >= LEAST_VALUE[kind] for shrink, floor in ends)


@dataclass
class _Walking:
    """Follows every path through an iteration that matters to a chain, or to whether the loop goes on."""

    bound: frozenset[str]

    def through(self, body: Sequence[Step], paths: list[_Path]) -> list[_Path] | None:
        """Return the paths after these steps; None if there are more than `MOST_PATHS`."""
        for step in body:
            extended: list[_Path] = []
            for path in paths:
                more = self.step(step, path)
                if more is None:
                    return None
                extended += more
            # Each branch may double the paths. A chain through many branches gets a tape instead of a long analysis.
            if len(extended) > MOST_PATHS:
                return None
            paths = extended
        return paths

    def step(self, step: Step, path: _Path) -> list[_Path] | None:
        if isinstance(step, nodes.If):
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
        source = match_factor(step.value, self.bound)
        if source is None or source[0] not in path.shrinks or source[2] is None:
            return [path]
        factor = path.ranges.of(source[2])
        part = factor if source[1] == "*" else Range(1 / factor.high, 1 / factor.low) if factor.low > 0 else Range()
        if part.low < LEAST_FACTOR or part.high > 1.0:
            # The result is left out of the chain: if the loop hands it on, `keeps_digits` does not find it and refuses.
            return [path]
        return [path.with_value(step.name, source[0], part.low)]

    def branch(self, step: nodes.If, path: _Path) -> list[_Path] | None:
        truth = self.truth(step.condition, path)
        extended: list[_Path] = []
        for holds, arm in ((True, step.body), (False, step.orelse)):
            if truth in (None, holds):
                more = self.through(arm, [self.take_arm(step.condition, path, holds=holds)])
                if more is None:
                    return None
                extended += more
        return extended

    def truth(self, condition: nodes.Expr, path: _Path) -> bool | None:
        match condition:
            case nodes.Const(value):
                return bool(value)
            case nodes.Local(name):
                return path.truths.get(name)
            case nodes.Unary(Operator.NOT, value):
                inner = self.truth(value, path)
                return None if inner is None else not inner
        return None

    def take_arm(self, condition: nodes.Expr, path: _Path, *, holds: bool) -> _Path:
        """Return the path after an arm of a branch: what the condition says holds from there on."""
        ranges = path.ranges.assuming(condition, holds=holds)
        # An early stop counts here: where `if t < 0.01: break` was not taken, `t` is at least 0.01.
        floors = {name: max(path.floors.get(name, 0.0), ranges.get_assumed(name).low) for name in path.shrinks}
        truths = {**path.truths, condition.name: holds} if isinstance(condition, nodes.Local) else path.truths
        return replace(path, ranges=ranges, floors=floors, truths=truths)


def find_exit_conditions(loop: nodes.Loop, known: Mapping[str, Sequence[nodes.Expr]]) -> dict[str, bool]:
    """Return the conditions that always end the loop when they have one truth value, each with that value."""
    if loop.exit is None:
        return {}
    paths = _Walking(frozenset()).through(loop.body, [_Path(Ranges(known), {}, {}, {})])
    conditions: dict[str, bool] = {}
    for step in walk.statements(loop.body) if paths else ():
        name = step.condition.name if isinstance(step, nodes.If) and isinstance(step.condition, nodes.Local) else ""
        for ends in (True, False):
            # A path that does not come to the condition says nothing
            # about it; on every other one the loop has to end.
            where = [path.truths.get(loop.exit.name) for path in paths or () if path.truths.get(name) is ends]
            if where and all(where):
                conditions[name] = ends
    return conditions


def match_factor(expr: nodes.Expr, bound: Collection[str]) -> tuple[str, str, nodes.Expr | None] | None:
    """Match one step of a chain: return the chain's value, the operator, and the other operand; None if it is not one.

    A copy has the operator "" and no operand. Floats may be multiplied or divided, integers added or subtracted: that
    can be undone. `bound` are the locals that depend on what the iteration is handed.
    """
    match expr:
        case nodes.Local(name):
            return name, "", None
        case nodes.Binary(
            Operator.MUL | Operator.DIV | Operator.ADD | Operator.SUB as operator, nodes.Local(name, kind), other
        ) if name in bound:
            pass
        case nodes.Binary(Operator.MUL | Operator.ADD as operator, other, nodes.Local(name, kind)) if name in bound:
            pass
        case _:
            return None
    # The operand must be known before the chain is, so it depends neither on a head nor on memory, which may have
    # changed since. A conversion of types between the two could not be undone.
    is_free = walk.locals_in([other]).isdisjoint(bound) and not walk.reads_memory(other)
    can_undo = operator in ("*/" if types.is_float(kind) else "+-")
    return (name, operator, other) if is_free and can_undo and kind == other.type == expr.type else None
