"""Chains that are run backwards: what an iteration was handed, computed from what it hands on.

    for k in range(n):               for k_back in range(n):
        w = T * a[k]          ->         T = T_next / (1 - a[k])
        T = T * (1 - a[k])               ...                            reverse of the iteration
                                         T_next = T

A transmittance `T = T * (1 - a)` needs no tape where `a` does not depend on `T`: the reverse divides. It is safe where

- the factor is bounded away from zero, by a clamp for instance: a division by 0.01 loses two digits, one by 0 all;
- the product neither grows nor becomes too small to hold its digits, as a loop sees to that stops below a number.

Both must follow from the text, by the ranges of its values on every path through an iteration (`_chain_paths`). Else
there is a tape. Of floats, differences `s - w` are never safe: after a large term nothing is left of the small ones
before it. Whole numbers are added up and subtracted exactly.

Whether `if t * (1 - a) < 0.01: break` held the reverse knows without `t`: it held in the last iteration or in none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....ir import Names, Type, minus, nodes, opposite, over, plus, times, types, walk
from .._chain_paths import LEAST_VALUE, find_exit_conditions, keeps_digits, match_factor
from .._ssa import Step

Block = list[nodes.Stmt]
Values = Mapping[str, nodes.Expr]
"""The value of a chain, by the one name that it has at a place."""
_KINDS = frozenset({*LEAST_VALUE, Type.I32, Type.I64, Type.U32, Type.U64})
_INVERSES = {"*": over, "/": times, "+": minus, "-": plus}


@dataclass(frozen=True)
class Inverse:
    """A chain that can be run backwards.

    Attributes:
        carried: what the loop hands on.
        now: the local that holds what the iteration handed on, and then what it was handed.
        type: of both.
        statements: they give the head its value, from `now` and what does not depend on a head.
    """

    carried: nodes.CarriedLocal
    now: str
    type: Type
    statements: nodes.Block


@dataclass(frozen=True)
class Stage:
    """Steps that depend on no head which is still unknown, and the chains that can be run backwards after them."""

    steps: tuple[Step, ...]
    inverses: tuple[Inverse, ...]


@dataclass(frozen=True)
class Rerun:
    """How an iteration that is reversed is run forward again.

    Attributes:
        stages: what comes first: the chains of a stage are known in the next one.
        rest: all other steps.
        ends: conditions that end the loop, each with the local that says whether it did, which is false but for the
            last iteration, and with the truth that ends it.
    """

    stages: tuple[Stage, ...]
    rest: tuple[Step, ...]
    ends: Mapping[str, tuple[str, bool]]

    @property
    def inverses(self) -> tuple[Inverse, ...]:
        return tuple(one for stage in self.stages for one in stage.inverses)


def plan_rerun(
    loop: nodes.Loop,
    needed: Collection[str],
    names: Names,
    state: Collection[str],
    known: Mapping[str, Sequence[nodes.Expr]],
) -> Rerun | None:
    """Plan how a loop's iterations run again, with as many of the needed heads as possible computed backwards.

    Args:
        loop: the loop.
        needed: names of heads.
        names: gives names to locals.
        state: arrays whose elements change while the frame runs: what is read from them cannot be moved about.
        known: definitions of all locals of the task.
    """
    chains = [one for one in loop.carried if one.head in needed and names.types[one.head] in _KINDS]
    # Stages change the order of the steps, which loads and stores of memory that changes do not allow.
    if not walk.find_touched(loop.body).isdisjoint(state):
        return None
    known_ends = find_exit_conditions(loop, known) if chains else {}
    while chains:
        bound = find_dependents(loop.body, [one.head for one in chains])
        ends = {name: (names.fresh("ended", Type.U1), truth) for name, truth in known_ends.items() if name in bound}
        staged = _in_stages(loop, _with_ends(loop.body, ends), chains, names, known)
        if len(staged[0]) == len(chains):
            _, stages, rest = staged
            return Rerun(stages, rest, ends)
        # The others go on a tape. What depends on them alone is then known, so the rest is tried again.
        chains = staged[0]
    return None


def _in_stages(
    loop: nodes.Loop,
    body: tuple[Step, ...],
    chains: Sequence[nodes.CarriedLocal],
    names: Names,
    known: Mapping[str, Sequence[nodes.Expr]],
) -> tuple[list[nodes.CarriedLocal], tuple[Stage, ...], tuple[Step, ...]]:
    """Return the chains that can be run backwards, the stages in which they are, and the steps that are left."""
    waiting, done = [*chains], list[nodes.CarriedLocal]()
    stages: list[Stage] = []
    rest = body
    while waiting:
        bound = find_dependents(body, [one.head for one in waiting])
        tried = [_invert(loop, body, one, bound, names, known) for one in waiting]
        inverses = tuple(one for one in tried if one is not None)
        if not inverses:
            break
        steps, rest = split_steps(rest, bound)
        stages.append(Stage(steps, inverses))
        done += [one.carried for one in inverses]
        waiting = [one for one in waiting if one not in done]
    return done, tuple(stages), rest


def _with_ends(body: Sequence[Step], ends: Mapping[str, tuple[str, bool]]) -> tuple[Step, ...]:
    """Replace conditions that end the loop by locals that say whether they did."""

    def change(step: Step) -> Sequence[Step]:
        if not isinstance(step, nodes.Assign) or step.name not in ends:
            return (step,)
        ended, truth = ends[step.name]
        local = nodes.Local(ended, Type.U1)
        return (replace(step, value=local if truth else opposite(local)),)

    return walk.rewrite(body, change)


def find_dependents(body: Sequence[Step], heads: Collection[str]) -> frozenset[str]:
    """Return `heads` and the locals that depend on them: by their values, or by the condition of a branch that assigns
    them.
    """
    dependents = set(heads)
    _collect_dependents(body, dependents, is_bound=False)
    return frozenset(dependents)


def _collect_dependents(body: Sequence[Step], dependents: set[str], *, is_bound: bool) -> None:
    for step in body:
        here = is_bound or not dependents.isdisjoint(walk.locals_read(step))
        if isinstance(step, nodes.If):
            for arm in (step.body, step.orelse):
                _collect_dependents(arm, dependents, is_bound=here)
        elif isinstance(step, nodes.Loop):
            if here or not dependents.isdisjoint(walk.find_read(step.body)):
                dependents.update(one.last for one in step.carried)
        elif here:
            dependents.update(walk.find_assigned(step))


def split_steps(body: Sequence[Step], bound: Collection[str]) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Split steps into those that do not depend on these locals, and those that do; a branch may become two."""
    free: list[Step] = []
    rest: list[Step] = []
    for step in body:
        reads = walk.locals_read(step)
        if isinstance(step, nodes.If) and reads.isdisjoint(bound):
            arms = [split_steps(arm, bound) for arm in (step.body, step.orelse)]
            for target, place in ((free, 0), (rest, 1)):
                if arms[0][place] or arms[1][place]:
                    target.append(replace(step, body=arms[0][place], orelse=arms[1][place]))
            continue
        # A change of memory happens once: it stays in its place among the rest.
        is_free = walk.find_read([step]).isdisjoint(bound) and not walk.find_changed([step])
        (free if is_free else rest).append(step)
    return tuple(free), tuple(rest)


def _invert(
    loop: nodes.Loop,
    body: Sequence[Step],
    carried: nodes.CarriedLocal,
    bound: frozenset[str],
    names: Names,
    known: Mapping[str, Sequence[nodes.Expr]],
) -> Inverse | None:
    kind = names.types[carried.head]
    if not isinstance(carried.next, nodes.Local):
        return None
    # Integers are added and subtracted exactly, also where they wrap around.
    if types.is_float(kind) and not keeps_digits(loop, carried, bound, known, kind):
        return None
    now = names.fresh(carried.head, kind)
    undoing = _Undoing(bound, names)
    values = undoing.block(body, {carried.next.name: nodes.Local(now, kind)})
    if values is None or values.keys() != {carried.head}:
        return None
    return Inverse(
        carried, now, kind, (*undoing.statements, nodes.Assign(carried.head, values[carried.head], loop.line))
    )


@dataclass
class _Undoing:
    """Goes through an iteration backwards with the value of the chain."""

    bound: frozenset[str]
    names: Names
    statements: Block = field(default_factory=list)

    def block(self, body: Sequence[Step], values: Values) -> Values | None:
        """Return the chain's value before steps, by its name there, from the one after them; None if unknown."""
        for place, step in reversed([*enumerate(body)]):
            if values.keys().isdisjoint(walk.find_defined([step])):
                continue
            if isinstance(step, nodes.If):
                return self.undo_branch(step, body[:place], values)
            earlier = self.undo_assign(step, values[step.name]) if isinstance(step, nodes.Assign) else None
            if earlier is None:
                return None
            values = earlier
        return values

    def undo_assign(self, step: nodes.Assign, value: nodes.Expr) -> Values | None:
        before = match_factor(step.value, self.bound)
        if before is None:
            return None
        name, operator, factor = before
        if factor is None:
            return {name: value}
        undone = _INVERSES[operator](value, factor)
        local = self.names.local(name, value.type)
        self.statements.append(nodes.Assign(local.name, undone, step.line))
        return {name: local}

    def undo_branch(self, step: nodes.If, before: Sequence[Step], values: Values) -> Values | None:
        """Undo a branch, together with the steps before it in its block; return the chain's value before all of them.

        Each arm undoes these steps for itself, since the arms may begin with different values of the chain. Return None
        if the branch cannot be undone.
        """
        outer, arms, ends = self.statements, [], []
        for part in (step.body, step.orelse):
            self.statements = []
            inside = self.block(part, values)
            ends.append(None if inside is None else self.block(before, inside))
            arms.append(self.statements)
        self.statements = outer
        one, other = ends
        if (
            one is None
            or other is None
            or one.keys() != other.keys()
            # The condition would be asked before the chain's value is known.
            or not walk.locals_read(step).isdisjoint(self.bound)
        ):
            return None
        (name,) = one
        local = self.names.local(name, one[name].type)
        for arm, end in zip(arms, (one, other), strict=True):
            arm.append(nodes.Assign(local.name, end[name], step.line))
        self.statements.append(nodes.If(step.condition, tuple(arms[0]), tuple(arms[1]), step.line))
        return {name: local}
