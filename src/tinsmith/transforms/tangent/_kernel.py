"""The tangent of a kernel: what it computes, and how that moves when what it is given does.

    kernel(x, y)  ->  kernel(x, y, x_dot, y_dot)

Everything that depends on something with a tangent has a companion of the same type, that holds the derivative of its
value in the direction of the tangents that were given. The kernel's own statements stay: a tangent needs
their values, and is worked out before each. What comes out is a kernel like any other, of which there is a
tangent, or an adjoint, again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType

from ...source.ir import NotCovered, nodes, types, walk
from .._bits import Part, check_bits
from .._exact import Exact
from .._names import Names, names_of
from ..polish import pruned
from ._activity import Activity
from ._extremes import INTEGER, Extreme, extremes_in, kept, settled, shared, sliced, without
from ._order import disordered, first_refused
from ._statements import Block, Statements


@dataclass(frozen=True)
class Tangent:
    """The tangent of a kernel.

    Attributes:
        kernel: what to run. What it is given: all that the kernel was given, then companions, then scratch.
        companions: names of the tangents of its arrays and arguments, by their names. One of an array is given the
            tangent that the array has before the run, 0 for most, and holds the one it has afterwards.
        scratch: arrays that must be 0 before the run, by name: an array that has the same sizes.
        disordered: arrays without a tangent that depend on the order of parallel iterations, with the reason.
    """

    kernel: nodes.Kernel
    companions: Mapping[str, str]
    scratch: Mapping[str, str] = field(default_factory=dict)
    disordered: Mapping[str, NotCovered] = field(default_factory=dict)


def tangent(
    kernel: nodes.Kernel,
    active: frozenset[str],
    *,
    inert: frozenset[str] = frozenset(),
    disordered: Mapping[str, NotCovered] = MappingProxyType({}),
) -> Tangent:
    """Forward mode: a kernel that carries tangents along.

    Args:
        kernel: the kernel.
        active: names of the arrays and arguments that are given a tangent. What is not floating has none.
        inert: arrays that get none, whatever is stored to them.
        disordered: arrays that depend on the order of parallel iterations before the kernel runs, with the reason.

    Raises:
        NotCovered: with the line, a construct whose tangent nobody can tell.

    Example:
        >>> arrays = {"x": nodes.Array("x", "f32", 0), "y": nodes.Array("y", "f32", 0)}
        >>> copy = nodes.Kernel("copy", "", arrays, {}, {}, (nodes.Store("y", (), (), nodes.Load("x", (), (), "f32")),))
        >>> tangent(copy, frozenset({"x"})).companions
        {'x': 'x_dot', 'y': 'y_dot'}
    """
    return _Pass(kernel, frozenset(n for n in active if types.is_float(_kind(kernel, n))), inert).result(disordered)


def _without_idle_results(kernel: nodes.Kernel) -> Block:
    """Its body, where atomics whose result nobody reads have none: of a maximum it would be in the way."""
    used = {name for one in walk.statements(kernel.body) for name in walk.locals_in(walk.expressions(one))}
    return tuple([_without_results(one, used) for one in kernel.body])


def _without_results(one: nodes.Stmt, used: set[str]) -> nodes.Stmt:
    match one:
        case nodes.Atomic() if one.result not in used:
            return replace(one, result=None)
        case nodes.If():
            body, orelse = (tuple([_without_results(inner, used) for inner in part]) for part in walk.bodies(one))
            return replace(one, body=body, orelse=orelse)
        case nodes.For() | nodes.While():
            return replace(one, body=tuple([_without_results(inner, used) for inner in one.body]))
        case _:
            return one


def _kind(kernel: nodes.Kernel, name: str) -> str:
    return kernel.arrays[name].type if name in kernel.arrays else kernel.arguments[name][0]


class _Pass:
    """One tangent being made."""

    def __init__(self, kernel: nodes.Kernel, active: frozenset[str], inert: frozenset[str]) -> None:
        self.kernel = kernel = replace(kernel, body=_without_idle_results(kernel))
        self.names = Names(names_of(kernel))
        self.activity = activity = Activity(kernel, active, inert)
        check_bits(Part([*walk.statements(kernel.body)], activity.has, kernel.path))
        self.arrays = [array for array in kernel.arrays.values() if activity.has_array(array.name)]
        self.arguments = {name: one for name, one in kernel.arguments.items() if activity.has_argument(name)}
        self.locals = {name: kind for name, kind in kernel.locals.items() if activity.has_local(name)}
        moving = [*(array.name for array in self.arrays), *self.arguments, *self.locals]
        self.companions = {name: self.names.fresh(f"{name}_dot") for name in moving}
        self.scratch: list[tuple[nodes.Array, str]] = []
        self.kernel = kernel = replace(kernel, body=tuple(chain.from_iterable(map(self._in_order, kernel.body))))
        self.extremes = self._extremes()
        kinds = {**kernel.locals, **{name: array.type for name, array in kernel.arrays.items()}}
        self.statements = Statements(kernel.path, kinds, activity, self.companions, self.names, self.extremes)

    def result(self, disordered_before: Mapping[str, NotCovered]) -> Tangent:
        body = tuple(chain.from_iterable(self._task(one) for one in self.kernel.body))
        by_order = disordered(self.kernel, self._results_by_order(), disordered_before)
        reason = first_refused(by_order, self.companions)
        if reason is not None:
            raise reason
        companions = [replace(one, name=self.companions[one.name], label="") for one in self.arrays]
        scratch = [array for array, _ in self.scratch]
        arguments = {self.companions[name]: one for name, one in self.arguments.items()}
        locals_ = {self.companions[name]: kind for name, kind in self.locals.items()}
        kernel = replace(
            self.kernel,
            name=f"{self.kernel.name}_tangent",
            arrays={**self.kernel.arrays, **{one.name: one for one in [*companions, *scratch]}},
            arguments={**self.kernel.arguments, **arguments},
            locals={**self.kernel.locals, **locals_, **self.names.types},
            body=body,
            cells=(*self.kernel.cells, *self._own_cells()),
        )
        given = [one.name for one in self.arrays if one.name not in self.kernel.cells]
        return Tangent(
            kernel,
            {name: self.companions[name] for name in [*given, *self.arguments]},
            {array.name: of for array, of in self.scratch if of not in self.kernel.cells},
            by_order,
        )

    def _results_by_order(self) -> dict[str, NotCovered]:
        """Locals that hold what atomics returned whose element several parallel iterations change."""
        found: dict[str, NotCovered] = {}
        for task in self.kernel.body:
            if not isinstance(task, nodes.For) or not _is_parallel(task):
                continue
            owned = _owned(task)
            for one in walk.stores(task.body):
                if isinstance(one, nodes.Atomic) and one.result is not None and one.array not in owned:
                    words = f"what `atomic_{one.operator}` returns in a parallel loop, which depends on the order"
                    found[one.result] = self._refused(words, one)
        return found

    def _own_cells(self) -> list[str]:
        """What lies beside the kernel's own memory is its own too."""
        cells = self.kernel.cells
        companions = [self.companions[name] for name in cells if name in self.companions]
        return [*companions, *(array.name for array, of in self.scratch if of in cells)]

    # Maxima and minima ------------------------------------------------------------------------

    def _extremes(self) -> dict[str, Extreme]:
        """What lies beside arrays that take maxima or minima of what has a tangent."""
        found = {one.array for one in extremes_in(self.kernel.body, self.companions)}
        return {array.name: self._extreme(array) for array in self.arrays if array.name in found}

    def _extreme(self, array: nodes.Array) -> Extreme:
        beside = [self.names.fresh(f"{array.name}_{what}") for what in ("ties", "before", "goal")]
        extreme = Extreme(array, self.companions[array.name], *beside)
        kinds = [(extreme.ties, INTEGER)]
        if self._is_raced(array.name):
            kinds += [(extreme.before, array.type), (extreme.goal, extreme.bits)]
        self.scratch += [(replace(array, name=name, type=kind, label=""), array.name) for name, kind in kinds]
        return extreme

    def _is_raced(self, array: str) -> bool:
        return any(array in self._later(task) for task in self.kernel.body)

    def _later(self, task: nodes.Stmt) -> frozenset[str]:
        """Arrays of which several iterations of a parallel task take the maximum or minimum of an element."""
        if not isinstance(task, nodes.For) or not _is_parallel(task):
            return frozenset()
        return frozenset(one.array for one in extremes_in(task.body, self.companions)) - _owned(task)

    def _in_order(self, task: nodes.Stmt) -> Block:
        """A task; where its winners cannot be told by running it twice, its maxima in a loop of their own, in order.

        A candidate that was calculated has other last bits in the second run where an engine compiles both runs
        differently: in order, one task holds both, and the gradient of a tangent works the candidate out a third time.
        Then winners are lost, in silence. In order the winner is known at once. The rest of the task stays parallel:
        the gradient of a loop in order asks for all that the loop changes, which nobody has kept.
        """
        later = self._later(task)
        if not later or not isinstance(task, nodes.For):
            return (task,)
        # What depends on the order of iterations is refused in any case.
        winners = self._for_winners(task, later)
        exact = Exact(task.body, {one.array for one in walk.stores(task.body)})
        candidates = [one.value for one in walk.stores(task.body) if one.array in later]
        if all(map(exact.has, candidates)):
            return (task,)
        rest = pruned([replace(task, body=without(task.body, later))])
        return (*rest, replace(task, body=winners, is_parallel=False))

    # Tasks ------------------------------------------------------------------------------------

    def _task(self, task: nodes.Stmt) -> Block:
        """A statement of the top level."""
        if not isinstance(task, nodes.For) or not _is_parallel(task):
            return self.statements.statement(task)
        later = self._later(task)
        statements = replace(self.statements, owned=_owned(task), later=later)
        if not later:
            return statements.statement(task)
        extremes = [self.extremes[name] for name in self.extremes if name in later]
        winners = replace(task, body=self._for_winners(task, later))
        run = replace(statements, is_for_winners=True).statement(winners)
        has_more = any(one.array not in later for one in walk.stores(task.body))
        return (
            *(statements.statement(task) if has_more else ()),
            *chain.from_iterable(kept(one, self.names, task.line) for one in extremes),
            *run,
            *chain.from_iterable(settled(one, self.names, task.line) for one in extremes),
            *run,
            *chain.from_iterable(shared(one, self.names, task.line) for one in extremes),
        )

    def _for_winners(self, task: nodes.For, later: frozenset[str]) -> Block:
        """A parallel loop's body with its maxima and minima alone: what may be run twice."""
        for one in walk.stores(task.body):
            if one.array in later and not self._is_plain(one, task):
                raise self._refused("a maximum or minimum that its own parallel loop uses or changes otherwise", one)
        body = sliced(task.body, later)
        written = {one.array for one in walk.stores(task.body)}
        for one in walk.statements(body):
            if isinstance(one, nodes.Draw) or (isinstance(one, nodes.Atomic) and one.array not in later):
                raise self._refused("a maximum or minimum in a parallel loop that cannot be run twice", one)
            read = {
                load.array
                for expr in walk.expressions(one)
                for load in walk.parts(expr)
                if isinstance(load, nodes.Load)
            }
            if read & written:
                raise self._refused("a maximum or minimum in a parallel loop that changes what it reads", one)
        return body

    def _is_plain(self, one: nodes.Store | nodes.Atomic, task: nodes.For) -> bool:
        """Whether a parallel loop does nothing with an array but take maxima, or minima, of its elements."""
        if (
            not isinstance(one, nodes.Atomic)
            or one.result is not None
            or one.array in _read(*walk.statements(task.body))
        ):
            return False
        others = [other for other in walk.stores(task.body) if other.array == one.array]
        return all(isinstance(other, nodes.Atomic) and other.operator == one.operator for other in others)

    def _refused(self, construct: str, one: nodes.Stmt) -> NotCovered:
        return NotCovered(f"the tangent of {construct}", one.line, f"{self.kernel.path}:{one.line}")


def _read(*statements: nodes.Stmt) -> set[str]:
    """Arrays whose elements statements read, apart from those inside them."""
    parts = (part for one in statements for expr in walk.expressions(one) for part in walk.parts(expr))
    return {part.array for part in parts if isinstance(part, nodes.Load)}


def _is_parallel(loop: nodes.For) -> bool:
    """Whether iterations may run at once: not where there is only one."""
    return loop.is_parallel and not all(_counts_one(*bound) for bound in loop.bounds)


def _counts_one(first: nodes.Expr, end: nodes.Expr) -> bool:
    return isinstance(first, nodes.Const) and isinstance(end, nodes.Const) and end.value - first.value <= 1


def _owned(loop: nodes.For) -> frozenset[str]:
    """Arrays whose every access in a parallel loop has the loop's own names at the same places of its index."""
    accesses: dict[str, set[tuple[int, ...]]] = {}
    copies = _copies(loop.body)
    for one in [*walk.loads(loop.body), *walk.stores(loop.body)]:
        accesses.setdefault(one.array, set()).add(_places(one.index, loop.names, copies))
    return frozenset(name for name, places in accesses.items() if len(places) == 1 and -1 not in next(iter(places)))


def _copies(body: Block) -> dict[str, str]:
    """Locals that are another one by another name: parameters of functions, for instance."""
    values: dict[str, list[nodes.Expr | None]] = {}
    for one in walk.statements(body):
        for name in walk.assigned(one):
            values.setdefault(name, []).append(one.value if isinstance(one, nodes.Assign) else None)
    only = ((name, given[0]) for name, given in values.items() if len(given) == 1)
    return {
        name: value.name
        for name, value in only
        if isinstance(value, nodes.Local) and len(values.get(value.name, ())) < 2
    }


def _places(index: tuple[nodes.Expr, ...], names: tuple[str, ...], copies: Mapping[str, str]) -> tuple[int, ...]:
    """Where in an index each name stands alone; -1 where it does not."""
    held = []
    for one in index:
        name = one.name if isinstance(one, nodes.Local) else ""
        while name in copies:
            name = copies[name]
        held.append(name)
    return tuple(held.index(name) if name in held else -1 for name in names)
