"""The tangent of a kernel: what it computes, and its derivative in a direction (forward mode).

    kernel(x, w, y)                    ->        kernel(x, w, y, x_dot, y_dot)
        t = x[i] * w[i]                              t_1 = w[i]
                                                     t_dot = x_dot[i] * t_1
                                                     t = x[i] * t_1
        if t > 0.0:                                  if t > 0.0:
            y[i] = sin(t)                                y_dot[i] = t_dot * cos(t)
                                                         y[i] = sin(t)

Everything that depends on something with a tangent has a companion of the same type, that holds the derivative of its
value in the direction of the tangents that were given. The kernel's own statements stay: a tangent needs
their values, and is computed before each. What comes out is a kernel like any other, of which there is a
tangent, or an adjoint, again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from ...analyses import Activity, Edge, concurrent_loop, find_owned, find_reachable, find_varied, shared_atomics
from ...ir import RUN_IN_ORDER, Names, NotCovered, Type, nodes, types, walk
from .._bits import Part, check_bits
from ..polish import declare_locals, eliminate_dead_code
from ._extremes import WrittenOut, write_out_extremes
from ._statements import Statements


@dataclass(frozen=True)
class Tangent:
    """The tangent of a kernel.

    Attributes:
        kernel: what to run. What it is given: all that the kernel was given, then companions, then scratch.
        companions: names of the tangents of its arrays and arguments, by their names. One of an array is given the
            tangent that the array has before the run, 0 for most, and holds the one it has afterwards.
        scratch: arrays that must be 0 before the run, by name: an array that has the same sizes.
        room: further arrays of one dim, by name: how long each has to be, in sizes and arguments of the kernel.
        disordered: arrays without a tangent that depend on the order of parallel iterations, with the reason.
    """

    kernel: nodes.Kernel
    companions: Mapping[str, str]
    scratch: Mapping[str, str] = field(default_factory=dict)
    room: Mapping[str, nodes.Expr] = field(default_factory=dict)
    disordered: Mapping[str, NotCovered] = field(default_factory=dict)

    @property
    def kernels(self) -> tuple[nodes.Kernel]:
        """The kernel."""
        return (self.kernel,)


@dataclass(frozen=True, kw_only=True)
class TangentOptions:
    """What a tangent depends on, besides the kernel.

    Attributes:
        active: arrays and arguments that are given a tangent. What is not floating has none.
        inert: arrays that get none, whatever is stored to them.
        disordered: arrays that depend on the order of parallel iterations before the kernel runs, with the reason.
    """

    active: frozenset[str]
    inert: frozenset[str] = frozenset()
    disordered: Mapping[str, NotCovered] = field(default_factory=dict)

    def find_moving(self, kernel: nodes.Kernel) -> Activity:
        """Find the arrays and locals of a kernel whose values depend on the active inputs, and so have a tangent."""
        floats = frozenset(name for name in self.active if types.is_float(_kind(kernel, name)))
        return find_varied(kernel, floats, self.inert)


def drop_idle_results(kernel: nodes.Kernel, _: TangentOptions) -> nodes.Kernel:
    """Drop the results of atomics that nobody reads: that of a maximum would be in the way."""
    used = walk.find_read(kernel.body)

    def is_idle(one: nodes.Stmt) -> bool:
        return isinstance(one, nodes.Atomic) and one.result is not None and one.result not in used

    if not any(map(is_idle, walk.statements(kernel.body))):
        return kernel
    body = walk.rewrite(kernel.body, lambda one: (replace(one, result=None) if is_idle(one) else one,))
    return replace(kernel, body=body)


def write_extremes(kernel: nodes.Kernel, options: TangentOptions) -> WrittenOut:
    """Write maxima and minima of arrays that have a tangent as ordinary statements.

    Raises:
        NotCovered: winners of a parallel loop cannot be known without running all of it again; or bits of a number that
            has a tangent are used.
    """
    moving = options.find_moving(kernel)
    check_bits(Part([*walk.statements(kernel.body)], moving.depends, moving.is_useful, kernel.path))
    arrays = [name for name in kernel.arrays if moving.has_array(name)]
    return write_out_extremes(kernel, arrays, Names(walk.names_of(kernel)))


def differentiate(written: WrittenOut, options: TangentOptions) -> Tangent:
    """Put before each statement the one that computes its tangent. Raises NotCovered, with the line."""
    return _Differentiation(written, options).result(options.disordered)


@dataclass(frozen=True, kw_only=True)
class UnneededOptions:
    """What of a tangent's memory is needed after it.

    Attributes:
        idle: arrays whose contents nobody reads afterwards.
        needed: arrays that a later kernel reads.
    """

    idle: frozenset[str]
    needed: frozenset[str]


def drop_unneeded(kernel: nodes.Kernel, options: UnneededOptions) -> nodes.Kernel:
    """Drop what neither the results nor a later kernel reads, and the arrays that are not used any more."""
    body = declare_locals(eliminate_dead_code(kernel.body, private=options.idle), kernel.locals)
    used = options.needed | walk.find_touched(body) | walk.find_sized(body)
    arrays = {name: array for name, array in kernel.arrays.items() if name in used}
    cells = tuple(name for name in kernel.cells if name in used)
    return replace(kernel, arrays=arrays, body=body, cells=cells)


def _kind(kernel: nodes.Kernel, name: str) -> Type:
    return kernel.arrays[name].type if name in kernel.arrays else kernel.arguments[name][0]


class _Differentiation:
    """One tangent being made."""

    def __init__(self, written: WrittenOut, options: TangentOptions) -> None:
        self.written = written
        self.given, self.kernel, self.names = written.given, written.kernel, written.names
        self.activity = activity = options.find_moving(self.kernel)
        self.arrays = [array for array in self.kernel.arrays.values() if activity.has_array(array.name)]
        self.arguments = {name: one for name, one in self.kernel.arguments.items() if activity.has_argument(name)}
        self.locals = {name: kind for name, kind in self.kernel.locals.items() if name in activity}
        moving = [*(array.name for array in self.arrays), *self.arguments, *self.locals]
        self.companions = {name: self.names.fresh(f"{name}_dot") for name in moving}
        kinds = {**self.kernel.locals, **{name: array.type for name, array in self.kernel.arrays.items()}}
        self.statements = Statements(self.kernel.path, kinds, activity, self.companions, self.names)

    def result(self, disordered_before: Mapping[str, NotCovered]) -> Tangent:
        body = tuple(chain.from_iterable(self._task(one) for one in self.kernel.body))
        by_order = find_order_dependent(self.kernel, self._results_by_order(), disordered_before)
        reason = next((by_order[name] for name in self.companions if name in by_order), None)
        if reason is not None:
            raise reason
        companions = [replace(one, name=self.companions[one.name], label="") for one in self.arrays]
        arguments = {self.companions[name]: one for name, one in self.arguments.items()}
        locals_ = {self.companions[name]: kind for name, kind in self.locals.items()}
        cells = self.kernel.cells
        kernel = replace(
            self.kernel,
            name=f"{self.kernel.name}_tangent",
            # A name keeps the place where it comes first: given arrays, companions, then scratch, as `Tangent` says.
            arrays={**self.given.arrays, **{one.name: one for one in companions}, **self.kernel.arrays},
            arguments={**self.kernel.arguments, **arguments},
            locals={**self.kernel.locals, **locals_, **self.names.types},
            body=body,
            cells=(
                *self.kernel.cells,
                *(self.companions[name] for name in self.kernel.cells if name in self.companions),
            ),
        )
        given = [one.name for one in self.arrays if one.name not in cells]
        return Tangent(
            kernel,
            {name: self.companions[name] for name in [*given, *self.arguments]},
            self.written.beside,
            self.written.room,
            by_order,
        )

    def _results_by_order(self) -> dict[str, NotCovered]:
        """Return the locals that hold old values of elements that several parallel iterations change by atomics."""
        refusals: dict[str, NotCovered] = {}
        for loop in filter(None, map(concurrent_loop, self.kernel.body)):
            for one in shared_atomics(loop):
                if one.result is not None:
                    words = (
                        f"the return value of `atomic_{one.operator}` in a parallel loop, which "
                        "depends on the order of the iterations"
                    )
                    refusals[one.result] = self._make_refusal(words, one)
        return refusals

    def _task(self, task: nodes.Stmt) -> nodes.Block:
        """Write a statement of the top level with its tangents."""
        loop = concurrent_loop(task)
        return replace(self.statements, owned=None if loop is None else find_owned(loop)).statement(task)

    def _make_refusal(self, construct: str, one: nodes.Stmt) -> NotCovered:
        return NotCovered(f"the tangent of {construct}", one.line, self.kernel.path, remedy=RUN_IN_ORDER)


# Dependence on the order of iterations ----------------------------------------------------------
# It reaches all that an atomic's old value does. A tangent is computed by a run of its own, and iterations come in
# another order there. So an element that belongs to one iteration in the forward pass may belong to another here: the
# tangent would be that of another result.


Reasons = Mapping[str, NotCovered]


def find_order_dependent(
    kernel: nodes.Kernel, sources: Mapping[str, NotCovered], before: Reasons
) -> dict[str, NotCovered]:
    """Return the arrays whose values depend on the order of parallel iterations, each with the reason.

    Args:
        kernel: the kernel.
        sources: locals that hold what an atomic returned in a parallel loop, with the reason.
        before: arrays that did already before the kernel ran.
    """
    if not sources and not before:
        return {}
    flow = _Flow()
    flow.block(kernel.body, frozenset())
    starts = {**sources, **{f"@{name}": reason for name, reason in before.items()}}
    reasons: dict[str, NotCovered] = {}
    for name, reason in starts.items():
        arrays = (one for one in find_reachable([name], flow.edges) if one.startswith("@"))
        reasons |= {one.removeprefix("@"): reasons.get(one.removeprefix("@"), reason) for one in arrays}
    return reasons


@dataclass
class _Flow:
    """Collects from what to what values go, by conditions, bounds and indices too."""

    edges: list[Edge] = field(default_factory=list)

    def block(self, body: Sequence[nodes.Stmt], around: frozenset[str]) -> None:
        """Collect the edges of statements; `around` are names that decide whether they run."""
        for one in body:
            self.statement(one, around)

    def statement(self, one: nodes.Stmt, around: frozenset[str]) -> None:
        read = around.union(*map(_read, walk.expressions(one)))
        targets = [
            *walk.find_assigned(one),
            *([f"@{one.array}"] if isinstance(one, nodes.Store | nodes.Atomic) else []),
        ]
        self.edges += [(source, target) for source in read for target in targets]
        if isinstance(one, nodes.Atomic) and one.result is not None:
            self.edges.append((f"@{one.array}", one.result))
        # Whether a statement runs depends on what let earlier statements or iterations leave the loop.
        if isinstance(one, nodes.For | nodes.While):
            read |= frozenset(_exits(one.body, frozenset()))
        for part in walk.bodies(one):
            self.block(part, read)


def _exits(body: Sequence[nodes.Stmt], conditions: frozenset[str]) -> Iterator[str]:
    """Yield the names that decide whether a loop's iteration is left early; loops inside have exits of their own."""
    for one in body:
        if isinstance(one, nodes.Break | nodes.Continue):
            yield from conditions
        elif isinstance(one, nodes.If):
            for part in walk.bodies(one):
                yield from _exits(part, conditions | _read(one.condition))


def _read(expr: nodes.Expr) -> frozenset[str]:
    """Return the locals that an expression reads, and its arrays with an `@` before their names."""
    return frozenset(walk.locals_in([expr])).union(f"@{name}" for name in walk.arrays_in([expr]))
