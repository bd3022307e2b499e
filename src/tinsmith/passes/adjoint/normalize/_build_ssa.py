"""From statements to SSA form, which is reversed: one value a local, loads as steps of their own.

    if c:                      if c:
        a = a + x[i]               x_at = x[i]
    y[i] = a          ->           a_2 = a_1 + x_at
                                   a_3 = a_2
                               else:
                                   a_3 = a_1
                               y[i] = a_3

There are no phi nodes: each arm of a branch assigns the merged local, and a loop lists what it carries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ....ir import ZERO, Names, NotCovered, Operator, Type, integer, minus, nodes, product, types, walk
from .._ssa import Step
from ._exits import structurize_exits

Scope = dict[str, nodes.Expr]
"""What each of the kernel's locals is called now."""
Ranges = tuple[tuple[str, ...], tuple[tuple[nodes.Expr, nodes.Expr], ...], list[Step]]
"""A loop's names and bounds, and steps at the head of its body."""


class SsaBuilder:
    """Brings the statements of one task into form."""

    def __init__(self, kernel: nodes.Kernel, names: Names) -> None:
        self.kernel = kernel
        self.names = names
        names.types |= kernel.locals
        self.steps: list[Step] = []

    def task(self, statement: nodes.Stmt | nodes.Block) -> tuple[Step, ...]:
        """Bring a task into form: a loop of the top level, or the statements between two."""
        body = statement if isinstance(statement, tuple) else (statement,)
        steps = self.block(body, {})
        return share_loads(steps, walk.find_changed(steps))

    # Statements -------------------------------------------------------------------------------

    def block(self, body: Sequence[nodes.Stmt], scope: Scope) -> tuple[Step, ...]:
        """Bring statements into form. `scope` is updated by what they assign."""
        outer, self.steps = self.steps, []
        try:
            for statement in body:
                self.statement(statement, scope)
            return tuple(self.steps)
        finally:
            self.steps = outer

    def statement(self, one: nodes.Stmt, scope: Scope) -> None:
        match one:
            case nodes.Assign():
                self.assign(one, scope)
            case nodes.Decompose():
                self.decompose(one, scope)
            case nodes.Store():
                index, value = self.index(one.index, scope, one.line), self.bind_stored(one, scope)
                self.steps.append(replace(one, index=index, value=value))
            case nodes.Atomic():
                self.atomic(one, scope)
            case nodes.If():
                self.branch(one, scope)
            case nodes.For() | nodes.While():
                self.loop(one, scope)
            case nodes.Draw():
                raise self.make_refusal("a random number, which would be different when the kernel runs again", one)
            case _:
                raise AssertionError(f"unexpected {one}; an earlier pass should have removed it")

    def assign(self, one: nodes.Assign, scope: Scope) -> None:
        value = _convert(one.value, self.names.types[one.name])
        scope[one.name] = self.bind(one.name, value, scope, one.line)

    def decompose(self, one: nodes.Decompose, scope: Scope) -> None:
        """Bring a decomposition into form. The entries of its matrix become locals, so that they have adjoints."""
        entries = [self.operand("entry", entry, scope, one.line) for entry in one.matrix]
        results = [self.names.local(name, one.type) for name in one.results]
        scope.update(zip(one.results, results, strict=True))
        names = tuple([result.name for result in results])
        self.steps.append(replace(one, matrix=tuple(entries), results=names))

    def operand(self, wish: str, value: nodes.Expr, scope: Scope, line: int) -> nodes.Expr:
        """Return a value as a local or a constant: itself if it is one, otherwise a fresh local like `wish`."""
        is_leaf = isinstance(value, nodes.Local | nodes.Const)
        return self.expression(value, scope, line) if is_leaf else self.bind(wish, value, scope, line)

    def bind(self, wish: str, value: nodes.Expr, scope: Scope, line: int) -> nodes.Local:
        """Append the steps that give a fresh local like `wish` a value, and return the local."""
        local = self.names.local(wish, value.type)
        self.assign_fresh(local.name, value, scope, line)
        return local

    def assign_fresh(self, name: str, value: nodes.Expr, scope: Scope, line: int) -> None:
        """Append the steps that give a fresh local a value."""
        if isinstance(value, nodes.Select) and types.is_float(value.type):
            self.assign_select(name, value, scope, line)
        elif isinstance(value, nodes.Load):
            self.steps.append(nodes.Assign(name, replace(value, index=self.index(value.index, scope, line)), line))
        else:
            self.steps.append(nodes.Assign(name, self.expression(value, scope, line), line))

    def assign_select(self, name: str, value: nodes.Select, scope: Scope, line: int) -> None:
        """Write a choice as a branch: the side that is not chosen gets no gradient, not one of zero times infinity."""
        condition = self.bind_condition(value.condition, scope, line)
        sides = []
        for side in (value.then, value.otherwise):
            outer, self.steps = self.steps, []
            self.assign_fresh(name, _convert(side, value.type), scope, line)
            sides.append(tuple(self.steps))
            self.steps = outer
        self.steps.append(nodes.If(condition, sides[0], sides[1], line))

    def bind_stored(self, one: nodes.Store | nodes.Atomic, scope: Scope) -> nodes.Expr:
        """Return the value that memory gets, as a local or a constant of the memory's type."""
        value = _convert(one.value, self.kernel.arrays[one.array].type)
        return self.operand(f"{one.array}_new", value, scope, one.line)

    def atomic(self, one: nodes.Atomic, scope: Scope) -> None:
        index, value = self.index(one.index, scope, one.line), self.bind_stored(one, scope)
        result = None
        if one.result is not None:
            scope[one.result] = old = self.names.local(one.result, self.kernel.arrays[one.array].type)
            result = old.name
        self.steps.append(replace(one, index=index, value=value, result=result))

    def branch(self, one: nodes.If, scope: Scope) -> None:
        condition = self.bind_condition(one.condition, scope, one.line)
        scopes = dict(scope), dict(scope)
        body, orelse = (list(self.block(part, mine)) for part, mine in zip((one.body, one.orelse), scopes, strict=True))
        # Only locals with a value before the branch can be read after it; others are an arm's own.
        for name, before in scope.items():
            ends = scopes[0][name], scopes[1][name]
            if ends == (before, before):
                continue
            merged = self.names.local(name, before.type)
            for steps, end in zip((body, orelse), ends, strict=True):
                steps.append(nodes.Assign(merged.name, end, one.line))
            scope[name] = merged
        self.steps.append(nodes.If(condition, tuple(body), tuple(orelse), one.line))

    def bind_condition(self, condition: nodes.Expr, scope: Scope, line: int) -> nodes.Expr:
        """Return a condition that can be asked again when the frame is reversed."""
        value = self.expression(condition, scope, line)
        if isinstance(value, nodes.Local | nodes.Const | nodes.Argument):
            return value
        holds = self.names.local("holds", value.type)
        self.steps.append(nodes.Assign(holds.name, value, line))
        return holds

    # Loops ------------------------------------------------------------------------------------

    def loop(self, one: nodes.For | nodes.While, scope: Scope) -> None:
        straight = structurize_exits(one.body, self.names)
        handed = [name for name in _find_assigned(one.body) if name in scope]
        heads = {name: self.names.local(name, scope[name].type) for name in handed}
        inner: Scope = scope | heads
        outer, self.steps = self.steps, []
        names, bounds, before = (), (), []
        if isinstance(one, nodes.For):
            # The reverse of a loop that ended early counts its iterations down, which takes one variable
            # (`LoopReversal.backwards`).
            many = len(one.names) > 1 and straight.exit is not None
            names, bounds, before = (self.flatten_loop if many else self.ranges)(one, scope, inner)
        first, self.steps = self.steps, list(before)
        for statement in straight.body:
            self.statement(statement, inner)
        body, self.steps = tuple(self.steps), [*outer, *first]
        leaves = None if straight.exit is None else inner[straight.exit]
        assert leaves is None or isinstance(leaves, nodes.Local)
        carried = []
        for name in handed:
            last, cell = (self.names.local(name, heads[name].type) for _ in range(2))
            carried.append(nodes.CarriedLocal(scope[name], heads[name].name, inner[name], last.name, cell.name))
            scope[name] = last
        is_parallel = walk.is_parallel(one)
        self.steps.append(nodes.Loop(names, bounds, body, tuple(carried), leaves, is_parallel, one.line))

    def ranges(self, one: nodes.For, scope: Scope, inner: Scope) -> Ranges:
        """Rename the variables of a loop, enter them in the scope `inner`, and return the new names and the bounds."""
        bounds = tuple([(self.bound_of(a, scope, one.line), self.bound_of(b, scope, one.line)) for a, b in one.bounds])
        fresh = [self.names.local(name, Type.I32) for name in one.names]
        inner.update(zip(one.names, fresh, strict=True))
        return tuple([local.name for local in fresh]), bounds, []

    def flatten_loop(self, one: nodes.For, scope: Scope, inner: Scope) -> Ranges:
        """Return a loop over several names as one over a count, from which the names are computed."""
        names, bounds, _ = self.ranges(one, scope, inner)
        flat = self.names.local("at", Type.I32)
        rest: nodes.Expr = flat
        sizes = [minus(end, first) for first, end in bounds]
        before: list[Step] = []
        # The last name varies fastest, so it is taken from the count
        # first. The first one needs no modulo: it is what is left.
        for name, (first, _), size in zip(reversed(names), reversed(bounds), reversed(sizes), strict=True):
            place = rest if name == names[0] else integer(Operator.MOD, rest, size)
            before.append(nodes.Assign(name, integer(Operator.ADD, first, place), one.line))
            rest = integer(Operator.FLOOR_DIV, rest, size)
        return (flat.name,), ((ZERO, product(sizes)),), before

    def bound_of(self, bound: nodes.Expr, scope: Scope, line: int) -> nodes.Expr:
        return _convert(self.expression(bound, scope, line), Type.I32)

    # Expressions ------------------------------------------------------------------------------

    def index(self, index: tuple[nodes.Expr, ...], scope: Scope, line: int) -> tuple[nodes.Expr, ...]:
        return tuple([self.expression(one, scope, line) for one in index])

    def expression(self, expr: nodes.Expr, scope: Scope, line: int) -> nodes.Expr:
        """Return an expression in the locals' present names; loads and choices of floats become steps before it."""
        if isinstance(expr, nodes.Local):
            if expr.name not in scope:
                raise NotCovered(f"`{expr.name}`, which is used but not assigned on every path", line, self.kernel.path)
            return scope[expr.name]
        is_choice = isinstance(expr, nodes.Select) and types.is_float(expr.type)
        if not is_choice and not isinstance(expr, nodes.Load):
            return walk.rebuild(expr, lambda one: self.expression(one, scope, line))
        return self.bind(f"{expr.array}_at" if isinstance(expr, nodes.Load) else "chosen", expr, scope, line)

    # Refusals ---------------------------------------------------------------------------------

    def make_refusal(self, construct: str, one: nodes.Stmt) -> NotCovered:
        return NotCovered(construct, one.line, self.kernel.path)


def _find_assigned(body: Sequence[nodes.Stmt]) -> list[str]:
    """Return the locals that statements assign, in order."""
    plain = (one for one in walk.statements(body) if not isinstance(one, nodes.For))
    return list(dict.fromkeys(name for one in plain for name in walk.find_assigned(one)))


def _convert(value: nodes.Expr, kind: Type) -> nodes.Expr:
    """Return a value converted to a type; a constant is converted by the engine, too."""
    return value if value.type == kind else nodes.Cast(value, kind)


Known: TypeAlias = tuple[Mapping[nodes.Expr, nodes.Local], Mapping[str, nodes.Local]]
"""The locals of loads before some steps, and locals that are copies, each with the one that it is a copy of."""


def share_loads(body: Sequence[Step], changed: Collection[str], known: Known = ({}, {})) -> tuple[Step, ...]:
    """Replace `b = x[i]` by `b = a` where `a = x[i]` stands before it on every path, and nobody changes `x`.

    Whatever is added to the adjoint of the element is then added once: three plain additions would load and store it
    three times, since an engine does not know that other arrays are other memory, and three atomic ones wait thrice.
    """
    loads, copies = dict(known[0]), dict(known[1])
    steps: list[Step] = []
    for one in body:
        if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Load) and one.value.array not in changed:
            load = walk.substitute(one.value, copies)
            if load in loads:
                copies[one.name] = loads[load]
            else:
                loads[load] = nodes.Local(one.name, load.type)
            one = replace(one, value=copies.get(one.name, load))
        # The iterations of a parallel loop share no local.
        around = ({}, {}) if isinstance(one, nodes.Loop) and one.is_parallel else (loads, copies)
        steps.append(walk.with_bodies(one, lambda inner, around=around: share_loads(inner, changed, around)))
    return tuple(steps)
