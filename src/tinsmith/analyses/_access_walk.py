"""Find the accesses of a parallel loop: its body is run symbolically.

Locals are replaced by what they are computed from, in terms of the loops' variables, sizes, arguments, and elements of
arrays that the loop does not change.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .._cache import cache_results
from .._lazy import lazy
from ..ir import AtomicOperator, Operator, Type, compare, integer, nodes, number, operators, types, walk
from ..spec import Arithmetic, Tree, parse
from ._accesses import MOST_REMEMBERED, OPAQUE, Condition, LoopAccess, Origin, find_origins, opaque
from ._definitions import definitions, single_definitions

DIM = -1
"""The axis of a `Size` that stands for a dim of the spec; its `array` is then the name of the dim."""
MOST_KERNELS = 4
"""Kernels whose facts are remembered, while all their loops are walked through."""
MOST_PARTS, MOST_PARTS_OF_FLOATS = 120, 30
"""Most nodes that an expression may have, of integers and of floats. The value of a larger one counts as unknown."""
_SIGNS = {"<": 1, "<=": 1, ">": -1, ">=": -1}
"""Comparisons by order, and whether a counter that goes up (1) or down (-1) ends them."""
_NAMELESS = (nodes.Const, nodes.Local, nodes.Argument, nodes.Size)
_ZERO = number(0)


def find_accesses(kernel: nodes.Kernel, loop: nodes.For) -> tuple[LoopAccess, ...]:
    """Return every access of an iteration of a loop of the top level; analyses of races and of bounds both ask."""
    # Iterations of a block share its memory on purpose, and wait for each other at barriers.
    changed = frozenset(name for name in walk.find_changed([loop]) if not kernel.arrays[name].is_of_blocks)
    walker = _Walk(kernel, changed, frozenset(walk.find_defined([loop])))
    walker.enter_loop(loop)
    walker.block(loop.body)
    return tuple(walker.accesses)


@dataclass
class _Walk:
    """Runs the body of a parallel loop symbolically, and collects its accesses.

    Attributes:
        kernel: the kernel.
        changed: arrays that the loop changes.
        own: locals that the loop gives a value.
        accesses: those collected so far.
        values: the present values of locals.
        conditions: what holds where the walk is.
        stores: the last store to each element under the same conditions, with the number of accesses up to it.
        latest: the last store or atomic to each array.
    """

    kernel: nodes.Kernel
    changed: frozenset[str]
    own: frozenset[str]
    accesses: list[LoopAccess] = field(default_factory=list)
    values: dict[str, nodes.Expr] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    stores: dict[object, tuple[int, LoopAccess]] = field(default_factory=dict)
    latest: dict[str, LoopAccess] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _scopes: dict[tuple[int, Condition], int] = field(default_factory=dict)
    _last_scopes: tuple[tuple[Condition, ...], list[int]] = ((), [0])

    @lazy
    def _facts(self) -> _Facts:
        return _find_facts(self.kernel)

    def enter_loop(self, loop: nodes.For) -> None:
        """Add the bounds of a loop to the conditions."""
        for name, (first, end) in zip(loop.names, loop.bounds, strict=True):
            variable = nodes.Local(name, Type.I32)
            self.values[name] = variable
            low, high = self.resolve(first, loop.line), self.resolve(end, loop.line)
            self.conditions += (
                Condition(compare(Operator.GE, variable, low), True, True),
                Condition(compare(Operator.LT, variable, high), True, True),
            )

    def block(self, body: Sequence[nodes.Stmt]) -> None:
        """Run statements; those behind a branch that may leave the loop or go on with it run under a condition."""
        for one in body:
            self.statement(one)
            if isinstance(one, nodes.If) and walk.has_exits(one):
                # Which of both arms leaves is in the arms' own conditions; the sum of them need not be expressed.
                stays = self.opaque(self.origin([one.condition]), Type.U1)
                condition = self.resolve(one.condition, one.line)
                leaves, other = (one.body, one.orelse) if _always_leaves(one.body) else (one.orelse, one.body)
                if _always_leaves(leaves) and not any(walk.jumps_in(other)):
                    self.conditions += (Condition(condition, leaves is not one.body),)
                else:
                    self.conditions += (Condition(stays, True),)

    def statement(self, one: nodes.Stmt) -> None:
        match one:
            case nodes.Assign(name, value):
                resolved, kind = self.resolve(value, one.line), self.kernel.locals.get(name, value.type)
                # A local keeps its type, so that an assignment may round or cut off.
                is_converted = types.is_float(resolved.type) != types.is_float(kind)
                self.values[name] = nodes.Cast(resolved, kind) if is_converted else resolved
            case nodes.Store():
                index, value = self.index(one.index, one.line), self.resolve(one.value, one.line)
                store = LoopAccess(one, one.line, index, value, self.conditions)
                self.accesses.append(store)
                self.stores[one.array, one.entry, index, self.list_scopes()[-1]] = len(self.accesses), store
                self.latest[one.array] = store
            case nodes.Atomic():
                index, _ = self.index(one.index, one.line), self.resolve(one.value, one.line)
                self.accesses.append(LoopAccess(one, one.line, index, None, self.conditions))
                self.latest[one.array] = self.accesses[-1]
                if one.result is not None:
                    # The old values of such an atomic are taken to be numbers that a counter hands out, each to one
                    # iteration. The step is part of the name, for `step_of`.
                    step = one.value.value if isinstance(one.value, nodes.Const) else 0
                    is_counter = (
                        one.operator in (AtomicOperator.ADD, AtomicOperator.SUB) and isinstance(step, int) and step != 0
                    )
                    result = self.opaque(Origin.COUNTER if is_counter else Origin.DATA, one.value.type)
                    self.values[one.result] = (
                        replace(result, name=f"{result.name}:{abs(step)}") if is_counter else result
                    )
            case nodes.If():
                self.branch(one)
            case nodes.For():
                self.inner_loop(one)
            case nodes.While():
                self.unknown_loop(one)
            case _:
                for expr in walk.expressions(one):
                    self.resolve(expr, one.line)
                for name in walk.find_assigned(one):
                    self.values[name] = self.opaque(Origin.DATA, self.kernel.locals.get(name, Type.F32))

    def branch(self, one: nodes.If) -> None:
        condition = self.resolve(one.condition, one.line)
        before, around = dict(self.values), self.conditions
        results = []
        for arm, holds in ((one.body, True), (one.orelse, False)):
            self.values, self.conditions = dict(before), (*around, Condition(condition, holds))
            self.block(arm)
            results.append(self.values)
        self.conditions = around
        then, otherwise = results
        # A local that only one arm gives a value is not read after the branch (`ir.verify`), so its value does not
        # matter.
        self.values = {**otherwise, **then}
        for name, second in otherwise.items():
            first = then.get(name)
            # Most locals have the very same value in both.
            if first is not second and first is not None and first != second:
                self.values[name] = self.limit(nodes.Select(condition, first, second, first.type))

    def inner_loop(self, one: nodes.For) -> None:
        around, before = self.conditions, dict(self.values)
        bounds = [self.resolve(bound, one.line) for bound in walk.expressions(one)]
        self.forget(one.body)
        self.enter_loop(one)
        variables = [nodes.Local(name, Type.I32) for name in one.names]
        turns = [integer(Operator.SUB, name, low) for name, low in zip(variables, bounds[::2], strict=True)]
        # Of several loops in one, the iterations before this one are not counted by a single variable.
        if len(turns) == 1:
            self.replace_counters(one.body, before, turns[0])
        # How often a loop with a `break` runs is decided inside it.
        if any(isinstance(inner, nodes.Break) for inner in walk.jumps_in(one.body)):
            self.conditions += (self.is_not_left(one.body, turns),)
        self.block(one.body)
        self.conditions = around
        self.forget(one.body, bounds)

    def unknown_loop(self, one: nodes.While) -> None:
        around, before = self.conditions, dict(self.values)
        # The space keeps it apart from all names of the kernel.
        turn = nodes.Local(f"turn {next(self._numbers)}", Type.I32)
        self.forget(one.body)
        self.replace_counters(one.body, before, turn)
        end = self.find_end(one.body, before)
        is_turn = Condition(compare(Operator.GE, turn, _ZERO), True, True)
        if end is None:
            self.conditions += (is_turn, self.is_not_left(one.body, [turn]))
        else:
            self.conditions += (is_turn, Condition(compare(Operator.LT, turn, end), True, True))
        self.block(one.body)
        self.conditions = around
        self.forget(one.body)

    def find_end(self, body: Sequence[nodes.Stmt], before: Mapping[str, nodes.Expr]) -> nodes.Expr | None:
        """Return how often a loop runs that leaves only at its start, once a counter has passed a fixed bound.

        None for other loops.
        """
        first = body[0] if body else None
        leaving = [*walk.jumps_in(body)]
        if not (isinstance(first, nodes.If) and len(leaving) == 1 and first.body == (leaving[0],) and not first.orelse):
            return None
        stays = _negate(first.condition)
        # Floats round, so that the number of iterations is not the distance divided by the step.
        if stays is None or types.is_float(stays.left.type) or types.is_float(stays.right.type):
            return None
        assigned = {name for one in walk.statements(body) for name in walk.find_assigned(one)}
        for counter, word, bound in (
            (stays.left, stays.operator, stays.right),
            (stays.right, operators.SWAPPED[stays.operator], stays.left),
        ):
            # The number of iterations is computed from the bound as it is before the loop.
            is_fixed = not (walk.locals_in([bound]) & assigned or walk.arrays_in([bound]) & self.changed)
            step = dict(_find_steps(body)).get(counter.name, 0) if isinstance(counter, nodes.Local) and is_fixed else 0
            # A counter that moves away from its bound never reaches it.
            if isinstance(counter, nodes.Local) and step * _SIGNS[word] > 0 and counter.name in before:
                low, high = before[counter.name], self.resolve(bound, 0)
                distance = integer(Operator.SUB, high, low) if step > 0 else integer(Operator.SUB, low, high)
                # `<=` runs once more, and a distance that is no multiple of the step is rounded up.
                added = number(abs(step) - 1 + word.endswith("="))
                whole = integer(Operator.ADD, distance, added)
                return integer(Operator.FLOOR_DIV, whole, number(abs(step))) if abs(step) > 1 else whole
        return None

    def is_not_left(self, body: Sequence[nodes.Stmt], turns: Sequence[nodes.Expr]) -> Condition:
        """Return the condition that no earlier iteration left a loop, which holds where all its `turns` are 0."""
        # In the first iteration, no earlier one can have left the loop.
        first = [compare(Operator.EQ, turn, _ZERO) for turn in turns]
        enough = functools.reduce(lambda one, two: nodes.Binary(Operator.AND, one, two, Type.U1), first)
        return Condition(self.opaque(self.origin_of_breaks(body), Type.U1), True, enough=enough)

    def replace_counters(self, body: Sequence[nodes.Stmt], before: Mapping[str, nodes.Expr], turn: nodes.Expr) -> None:
        """Replace each local that an iteration increases by a constant with its initial value plus `turn` times the
        constant.
        """
        # A `continue` may skip the addition.
        if any(isinstance(inner, nodes.Continue) for inner in walk.jumps_in(body)):
            return
        for name, step in _find_steps(body):
            if name in before:
                kind = before[name].type
                moved = nodes.Binary(Operator.MUL, turn, nodes.Const(step, kind), kind)
                self.values[name] = nodes.Binary(Operator.ADD, before[name], moved, kind)

    def origin_of_breaks(self, body: Sequence[nodes.Stmt]) -> Origin:
        """Return what the conditions of a loop's early exits (`break` and the like) depend on."""
        branches = [one for one in walk.frame_statements(body) if isinstance(one, nodes.If) and walk.has_exits(one)]
        return self.origin([one.condition for one in branches])

    def forget(self, body: Sequence[nodes.Stmt], bounds: Sequence[nodes.Expr] = ()) -> None:
        """Make locals opaque that a loop's iterations change: their values hold for no single iteration."""
        defined = {}
        for one in walk.statements(body):
            for name in walk.find_assigned(one):
                defined.setdefault(name, []).append(one)
        # What decides how often they change.
        around = self.origin([*bounds, *(one.condition for one in walk.statements(body) if isinstance(one, nodes.If))])
        for name, statements in defined.items():
            exprs = [expr for one in statements for expr in walk.expressions(one)]
            # Draws and atomics depend on more than their operands.
            is_plain = all(isinstance(one, nodes.Assign | nodes.For) for one in statements)
            is_of_data = not is_plain or Origin.DATA in (around, self.origin(exprs))
            origin = Origin.DATA if is_of_data else Origin.UNKNOWN
            self.values[name] = self.opaque(origin, self.kernel.locals.get(name, Type.I32))

    def origin(self, exprs: Sequence[nodes.Expr]) -> Origin:
        """Return `Origin.DATA` if an expression depends on the contents of an array, else `Origin.UNKNOWN`."""
        names = walk.locals_in(exprs)
        origins = find_origins([*exprs, *(self.values[name] for name in names if name in self.values)])
        return Origin.DATA if Origin.DATA in origins else Origin.UNKNOWN

    def opaque(self, origin: Origin, kind: Type) -> nodes.Local:
        return opaque(origin, kind, next(self._numbers))

    def index(self, index: Sequence[nodes.Expr], line: int) -> tuple[nodes.Expr, ...]:
        return tuple([self.resolve(one, line) for one in index])

    def resolve(self, expr: nodes.Expr, line: int) -> nodes.Expr:
        """Return an expression with locals replaced by their values, and note what it loads."""
        resolved = self._resolve(expr, line)
        if isinstance(resolved, _NAMELESS):
            return resolved
        return self.limit(resolved)

    def limit(self, expr: nodes.Expr) -> nodes.Expr:
        """Return the expression itself or, if it has too many nodes, an opaque local whose value is unknown."""
        # Expressions in terms of earlier values may double in size with each line, as in `u = u * u`.
        most = MOST_PARTS_OF_FLOATS if types.is_float(expr.type) else MOST_PARTS
        is_small = sum(1 for _ in itertools.islice(walk.parts(expr), most + 1)) <= most
        return expr if is_small else self.opaque(self.origin([expr]), expr.type)

    def value_before(self, local: nodes.Local) -> nodes.Expr:
        """Return what a local of the top level stands for that the loop does not change: all iterations share it."""
        value = self._facts.definitions.get(local.name)
        # An argument of the local's name stands for a number that is unknown, but shared by all iterations.
        is_unknown = value is None or walk.reads_memory(value)
        return nodes.Argument(local.name, local.type) if is_unknown or value is None else self._resolve(value, 0)

    def _resolve(self, expr: nodes.Expr, line: int) -> nodes.Expr:
        match expr:
            case nodes.Local(name):
                if name not in self.values and name not in self.own and not name.startswith(OPAQUE):
                    self.values[name] = self.value_before(expr)
                return self.values.get(name, expr)
            case nodes.Argument(name) if name in self._facts.dim_names:
                return nodes.Size(name, DIM)
            case nodes.Size(array, axis):
                return canonical_size(self.kernel.arrays, array, axis)
            case nodes.Load():
                index = self.index(expr.index, line)
                if expr.array in self._facts.slots and expr.array not in self.changed:
                    result = self.opaque(Origin.COUNTER, expr.type)
                    return replace(result, name=f"{result.name}:1")
                load = LoopAccess(expr, line, index, None, self.conditions)
                if expr.array not in self.changed:
                    self.accesses.append(load)
                    return nodes.Load(expr.array, index, expr.entry, expr.type)
                # What the iteration itself stored here is no access to others' elements. It is also the value that is
                # loaded, unless something was stored to the array since, perhaps to this element under another index.
                # The last store by which, wherever the load happens, its own iteration gave the element a value: its
                # conditions begin those of the load. What another iteration does to the element conflicts with it.
                keys = ((load.array, load.entry, load.index, scope) for scope in self.list_scopes())
                stores = [self.stores[key] for key in keys if key in self.stores]
                store = max(stores, key=lambda one: one[0])[1] if stores else None
                if store is None:
                    self.accesses.append(load)
                elif self.latest[expr.array] is store and store.value is not None:
                    return nodes.Cast(store.value, expr.type)
                return self.opaque(Origin.DATA, expr.type)
            case nodes.Select(condition, then, otherwise):
                # What is loaded for the number that is not taken has no effect.
                condition = self._resolve(condition, line)
                pairs = ((then, True), (otherwise, False))
                arms = [self.resolve_under(condition, arm, line, holds=holds) for arm, holds in pairs]
                return nodes.Select(condition, arms[0], arms[1], expr.type)
            case nodes.Binary(Operator.AND | Operator.OR as word, left, right):
                # Nor has what is loaded for the right side of a condition that the left side decides.
                left = self._resolve(left, line)
                right = self.resolve_under(left, right, line, holds=word is Operator.AND)
                return nodes.Binary(word, left, right, expr.type)
        return walk.rebuild(expr, lambda part: self._resolve(part, line))

    def list_scopes(self) -> list[int]:
        """Return a number for each beginning of the present conditions, the shortest first: equal ones share it."""
        conditions, scopes = self._last_scopes
        if conditions is not self.conditions:
            scopes = [0]
            for one in self.conditions:
                scopes.append(self._scopes.setdefault((scopes[-1], one), len(self._scopes) + 1))
            self._last_scopes = self.conditions, scopes
        return scopes

    def resolve_under(self, condition: nodes.Expr, expr: nodes.Expr, line: int, *, holds: bool) -> nodes.Expr:
        """Resolve an expression whose value matters only where a condition holds, or does not."""
        around = self.conditions
        self.conditions = (*around, Condition(condition, holds))
        resolved = self._resolve(expr, line)
        self.conditions = around
        return resolved


def canonical_size(arrays: Mapping[str, nodes.Array], array: str, axis: int) -> nodes.Expr:
    """Return one expression for all sizes that the spec says are equal."""
    size = arrays[array].sizes[axis] if array in arrays and axis < len(arrays[array].sizes) else None
    if isinstance(size, int):
        return number(size)
    return nodes.Size(array, axis) if size is None else _size_of_dim(size)


@cache_results("sizes of dims", MOST_REMEMBERED)
def _size_of_dim(text: str) -> nodes.Expr:
    """Return the size of a dim of a spec: of `n // 2`, in terms of `n`."""
    # Longer than any name in the dim, which may itself be called `y`.
    array = "y" * (len(text) + 1)
    dim = parse(f"-> {array}[{text}]").outputs[0].dims[0]
    return _size_of_tree(dim.tree if isinstance(dim, Arithmetic) else text)


def _size_of_tree(tree: Tree) -> nodes.Expr:
    if isinstance(tree, tuple):
        return integer(Operator(tree[0]), _size_of_tree(tree[1]), _size_of_tree(tree[2]))
    return number(tree) if isinstance(tree, int) else nodes.Size(tree, DIM)


@dataclass(frozen=True)
class _Facts:
    """What the walks through all loops of a kernel ask.

    Attributes:
        slots: arrays to which it stores nothing but numbers that atomic counters handed out.
        dim_names: names of the spec in the sizes of its arrays.
        definitions: the single definitions of its locals.
    """

    slots: frozenset[str]
    dim_names: frozenset[str]
    definitions: Mapping[str, nodes.Expr]


@cache_results("facts of kernels", MOST_KERNELS)
def _find_facts(kernel: nodes.Kernel) -> _Facts:
    known = single_definitions(definitions(kernel.body))
    return _Facts(_find_slots(kernel), _find_dim_names(kernel), known)


def _find_dim_names(kernel: nodes.Kernel) -> frozenset[str]:
    """Return names of the spec in the sizes of a kernel's arrays: arguments of these names are sizes, too."""
    texts = {size for array in kernel.arrays.values() for size in array.sizes if isinstance(size, str)}
    sizes = (one for text in texts for one in walk.parts(_size_of_dim(text)))
    return frozenset(one.array for one in sizes if isinstance(one, nodes.Size))


def _find_slots(kernel: nodes.Kernel) -> frozenset[str]:
    """Return arrays to which a kernel stores nothing but numbers that atomic counters handed out."""
    counted: set[str] = set()
    kinds: dict[str, set[bool]] = {}
    for one in walk.statements(kernel.body):
        match one:
            case nodes.Atomic(operator=AtomicOperator.ADD | AtomicOperator.SUB, result=str() as name) if (
                not types.is_float(one.value.type)
            ):
                counted.add(name)
            case nodes.Assign(name, nodes.Local(source)) if source in counted:
                counted.add(name)
        if isinstance(one, nodes.Store):
            is_counted = isinstance(one.value, nodes.Local) and one.value.name in counted
            kinds.setdefault(one.array, set()).add(is_counted)
        elif isinstance(one, nodes.Atomic):
            kinds.setdefault(one.array, set()).add(False)
    return frozenset(name for name, are_counted in kinds.items() if are_counted == {True})


def _find_steps(body: Sequence[nodes.Stmt]) -> Iterator[tuple[str, int]]:
    """Yield each local to which each iteration of a loop adds a constant, and that constant."""
    changes = Counter(changed for one in walk.statements(body) for changed in walk.find_assigned(one))
    for one in body:
        match one:
            case nodes.Assign(
                name,
                nodes.Binary(Operator.ADD | Operator.SUB as word, nodes.Local(same), nodes.Const(int() as step)),
            ) if name == same and changes[name] == 1 and step:
                yield name, step if word == "+" else -step


def _negate(condition: nodes.Expr) -> nodes.Binary | None:
    """Return the comparison that holds where a condition does not; None if neither is a comparison by order."""
    match condition:
        case nodes.Unary(Operator.NOT, nodes.Binary() as inner) if inner.operator in _SIGNS:
            return inner
        case nodes.Binary() if condition.operator in _SIGNS:
            return replace(condition, operator=operators.OPPOSITE[condition.operator])
    return None


def _always_leaves(body: Sequence[nodes.Stmt]) -> bool:
    return bool(body) and isinstance(body[-1], nodes.Break | nodes.Continue)
