"""The tangent of a kernel: what it computes, and how that moves when what it is given does.

    kernel(x, y)  ->  kernel(x, y, x_dot, y_dot)

Everything that depends on something with a tangent has a companion of the same type, that holds the derivative of its
value in the direction of the tangents that were given. The kernel's own statements stay: a tangent needs
their values, and is computed before each. What comes out is a kernel like any other, of which there is a
tangent, or an adjoint, again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType

from ...analyses import concurrent_loop, find_owned, find_varied, shared_atomics
from ...ir import RUN_IN_ORDER, Names, NotCovered, Type, nodes, types, walk
from .._bits import Part, check_bits
from ._extremes import write_out_extremes
from ._order import find_order_dependent, first_refused
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
        NotCovered: with the line, a construct whose tangent is unknown.

    Example:
        >>> arrays = {"x": nodes.Array("x", "f32", 0), "y": nodes.Array("y", "f32", 0)}
        >>> copy = nodes.Kernel("copy", "", arrays, {}, {}, (nodes.Store("y", (), (), nodes.Load("x", (), (), "f32")),))
        >>> tangent(copy, frozenset({"x"})).companions
        {'x': 'x_dot', 'y': 'y_dot'}
    """
    return _Pass(kernel, frozenset(n for n in active if types.is_float(_kind(kernel, n))), inert).result(disordered)


def _without_idle_results(kernel: nodes.Kernel) -> nodes.Block:
    """Its body, where atomics whose result nobody reads have none: of a maximum it would be in the way."""
    used = walk.find_read(kernel.body)

    def change(one: nodes.Stmt) -> nodes.Block:
        return (replace(one, result=None) if isinstance(one, nodes.Atomic) and one.result not in used else one,)

    return walk.rewrite(kernel.body, change)


def _kind(kernel: nodes.Kernel, name: str) -> Type:
    return kernel.arrays[name].type if name in kernel.arrays else kernel.arguments[name][0]


class _Pass:
    """One tangent being made."""

    def __init__(self, kernel: nodes.Kernel, active: frozenset[str], inert: frozenset[str]) -> None:
        self.kernel = kernel = replace(kernel, body=_without_idle_results(kernel))
        self.names = Names(walk.names_of(kernel))
        self.activity = activity = find_varied(kernel, active, inert)
        check_bits(Part([*walk.statements(kernel.body)], activity.depends, activity.is_useful, kernel.path))
        moving = [name for name in kernel.arrays if activity.has_array(name)]
        self.written = write_out_extremes(kernel, moving, self.names)
        self.given, self.kernel = kernel, self.written.kernel
        self.activity = activity = find_varied(self.kernel, active, inert)
        self.arrays = [array for array in self.kernel.arrays.values() if activity.has_array(array.name)]
        self.arguments = {name: one for name, one in kernel.arguments.items() if activity.has_argument(name)}
        self.locals = {name: kind for name, kind in self.kernel.locals.items() if name in activity}
        moving = [*(array.name for array in self.arrays), *self.arguments, *self.locals]
        self.companions = {name: self.names.fresh(f"{name}_dot") for name in moving}
        kinds = {**self.kernel.locals, **{name: array.type for name, array in self.kernel.arrays.items()}}
        self.statements = Statements(kernel.path, kinds, activity, self.companions, self.names)

    def result(self, disordered_before: Mapping[str, NotCovered]) -> Tangent:
        body = tuple(chain.from_iterable(self._task(one) for one in self.kernel.body))
        by_order = find_order_dependent(self.kernel, self._results_by_order(), disordered_before)
        reason = first_refused(by_order, self.companions)
        if reason is not None:
            raise reason
        companions = [replace(one, name=self.companions[one.name], label="") for one in self.arrays]
        arguments = {self.companions[name]: one for name, one in self.arguments.items()}
        locals_ = {self.companions[name]: kind for name, kind in self.locals.items()}
        cells = self.kernel.cells
        kernel = replace(
            self.kernel,
            name=f"{self.kernel.name}_tangent",
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
        """Locals that hold what atomics returned whose element several parallel iterations change."""
        refusals: dict[str, NotCovered] = {}
        for loop in filter(None, map(concurrent_loop, self.kernel.body)):
            for one in shared_atomics(loop):
                if one.result is not None:
                    words = f"what `atomic_{one.operator}` returns in a parallel loop, which depends on the order"
                    refusals[one.result] = self._make_refusal(words, one)
        return refusals

    def _task(self, task: nodes.Stmt) -> nodes.Block:
        """A statement of the top level."""
        loop = concurrent_loop(task)
        return replace(self.statements, owned=None if loop is None else find_owned(loop)).statement(task)

    def _make_refusal(self, construct: str, one: nodes.Stmt) -> NotCovered:
        return NotCovered(f"the tangent of {construct}", one.line, self.kernel.path, remedy=RUN_IN_ORDER)
