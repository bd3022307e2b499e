"""Gathers: iterations that add to adjoints of their neighbours fetch what their neighbours would have added to theirs.

    for i in range(n):                             for i in range(grad_x.shape[0]):
        atomic_add(grad_x[i], grad_y[i])               total = grad_y[i]
        if i > 0:                           ->         if i + 1 < n:
            g = w[i] * grad_y[i]                           g = w[i + 1] * grad_y[i + 1]
            atomic_add(grad_x[i - 1], g)                   total = total + g
                                                       grad_x[i] = grad_x[i] + total

The adjoint of a stencil is a stencil (Hückelheim et al. 2019). It needs no atomic, gives the same bits in each run,
fills each element once (`_whole_gradients`), and can run in machine vectors. The price is that some of an iteration is
worked out once more for each neighbour, so this is done only where the atomics would cost more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...source.ir import nodes, types, walk
from .._algebra import compare, constant, minus, plus, shift_by
from .._names import Names
from ..analysis import affine, definitions, whole_definitions
from ..polish import find_added_value, simplify
from ._flops import SHARED_ATOMIC, count_text_operations
from ._program import Program, Run
from ._whole_gradients import Extent

_Shift = tuple[int, ...]
"""How far from an iteration the element lies that it adds to, for each name of its loop."""
_REFUSED = (nodes.For, nodes.While, nodes.Break, nodes.Continue, nodes.Draw, nodes.Decompose, nodes.Barrier)


def gather_additions(program: Program, extent: Extent) -> Program:
    """A program whose kernels gather what they added to neighbours by atomics, where that costs less.

    Args:
        program: a backward pass.
        extent: tells which axes are equally long.
    """
    changed: dict[nodes.Kernel, nodes.Kernel] = {}
    owners = {gradient: array for array, gradient in program.gradients.items()}
    for kernel in dict.fromkeys(run.kernel for run in program.runs):
        gathered = _Kernel(kernel, owners, extent).gather()
        if gathered is not None:
            changed[kernel] = gathered
    actions = [
        replace(one, kernel=changed[one.kernel]) if isinstance(one, Run) and one.kernel in changed else one
        for one in program.actions
    ]
    return replace(program, actions=tuple(actions))


@dataclass(frozen=True)
class _Scattered:
    """An adjoint to which a loop adds by atomics alone, near the element of each iteration.

    Attributes:
        axes: for each name of the loop the axis that goes with it.
        shifts: of its additions, each with the statement.
    """

    array: nodes.Array
    axes: tuple[int, ...]
    shifts: tuple[tuple[nodes.Atomic, _Shift], ...]

    def index(self, names: Sequence[str]) -> tuple[nodes.Expr, ...]:
        """The element of an iteration."""
        by_axis = {axis: nodes.Local(name, "i32") for name, axis in zip(names, self.axes, strict=True)}
        return tuple(by_axis[axis] for axis in range(self.array.rank))


class _Kernel:
    """Writes one kernel anew."""

    def __init__(self, kernel: nodes.Kernel, owners: Mapping[str, str], extent: Extent) -> None:
        self.kernel = kernel
        self.owners = owners
        self.extent = extent
        self.names = Names(walk.names_of(kernel))
        self.names.types |= kernel.locals

    def gather(self) -> nodes.Kernel | None:
        """The kernel with loops that gather; None where no loop gains."""
        body = tuple(
            (isinstance(one, nodes.For) and one.is_parallel and self.loop(one)) or one for one in self.kernel.body
        )
        if body == self.kernel.body:
            return None
        kinds = dict(self.names.types)
        body = simplify(body, kinds, {*self.owners})
        defined = walk.find_defined(body)
        return replace(self.kernel, body=body, locals={name: kind for name, kind in kinds.items() if name in defined})

    def loop(self, loop: nodes.For) -> nodes.For | None:
        """A loop that gathers; None where it cannot, or loses."""
        if loop.block_size or any(isinstance(one, _REFUSED) for one in walk.statements(loop.body)):
            return None
        scattered = self.find_scattered(loop)
        if not scattered:
            return None
        gathered = self.write(loop, scattered)
        if gathered is None:
            return None
        saved = SHARED_ATOMIC * sum(len(one.shifts) for one in scattered)
        kinds = dict(self.names.types)
        more = count_text_operations(simplify([gathered], kinds)) - count_text_operations([loop])
        return gathered if more <= saved else None

    def length(self, expr: nodes.Expr) -> object:
        """What is equal for sizes of arrays that are known to be equally long."""
        if not isinstance(expr, nodes.Size):
            return expr
        return self.extent(self.owners.get(expr.array, expr.array), expr.axis)

    def find_scattered(self, loop: nodes.For) -> list[_Scattered]:
        """Adjoints that the loop adds to by atomics, as long as the loop is but for some iterations at its ends."""
        known = whole_definitions(definitions(loop.body))
        atomics: dict[str, list[nodes.Atomic]] = {}
        for one in walk.stores(loop.body):
            if isinstance(one, nodes.Atomic):
                atomics.setdefault(one.array, []).append(one)
        scattered: list[_Scattered] = []
        for name, additions in atomics.items():
            array = self.kernel.arrays[name]
            touches = [one for one in (*walk.loads(loop.body), *walk.stores(loop.body)) if one.array == name]
            is_plain = name in self.owners and not array.label and not array.offset and types.is_float(array.type)
            if not is_plain or len(touches) != len(additions) or array.rank != len(loop.names):
                continue
            places = [_place(one, loop.names, known) for one in additions]
            axes = {axes for axes, _ in filter(None, places)}
            if None in places or len(axes) != 1 or any(find_added_value(one) is None for one in additions):
                continue
            one = _Scattered(
                array, axes.pop(), tuple((one, place[1]) for one, place in zip(additions, places, strict=True) if place)
            )
            if all(self.is_within(loop, place, one) for place in range(len(loop.names))):
                scattered.append(one)
        return scattered

    def is_within(self, loop: nodes.For, place: int, one: _Scattered) -> bool:
        """Whether a name of the loop goes through the axis of an adjoint, all of it but for some at either end."""
        begin, end = loop.bounds[place]
        return (
            isinstance(begin, nodes.Const)
            and begin.value >= 0
            and self.ends_before(end, nodes.Size(one.array.name, one.axes[place])) is not None
        )

    def ends_before(self, end: nodes.Expr, size: nodes.Expr) -> int | None:
        """How many iterations a loop ends before a size; None where that is not known, or it goes on beyond."""
        whole = affine(end, {})
        match [*whole.terms.items()]:
            case [(nodes.Size() as other, 1)] if self.length(other) == self.length(size) and whole.constant <= 0:
                return -whole.constant
        return None

    def write(self, loop: nodes.For, scattered: Sequence[_Scattered]) -> nodes.For | None:
        """The loop over elements; None where an iteration reads what another one changes."""
        first = scattered[0]
        sizes = [nodes.Size(first.array.name, axis) for axis in first.axes]
        extents = {self.length(size): size for size in sizes}

        def rename_size(one: Any) -> Any:
            return extents.get(self.length(one), one) if isinstance(one, nodes.Size) else one

        loop = replace(loop, body=walk.number_statements(walk.change_parts(loop.body, rename_size)))
        scattered = self.find_scattered(loop)
        shift_of = {statement.number: shift for one in scattered for statement, shift in one.shifts}
        entries = dict.fromkeys((one.array.name, statement.entry) for one in scattered for statement, _ in one.shifts)
        totals = {entry: self.names.local(f"{entry[0]}_sum", self.kernel.arrays[entry[0]].type) for entry in entries}
        body: list[nodes.Stmt] = [
            nodes.Assign(total.name, constant(0, total.type), loop.line) for total in totals.values()
        ]
        here = (0,) * len(loop.names)
        stored = {one.array for one in walk.stores(loop.body)}
        for shift in sorted({here, *shift_of.values()}, key=lambda one: (one != here, one)):

            def change(one: nodes.Stmt, shift: _Shift = shift) -> Sequence[nodes.Stmt]:
                if isinstance(one, nodes.Atomic) and one.number in shift_of:
                    if shift_of[one.number] != shift:
                        return []
                    total = totals[one.array, one.entry]
                    return [nodes.Assign(total.name, plus(total, one.value), one.line)]
                is_dropped = isinstance(one, nodes.Store | nodes.Atomic) and shift != here
                return [] if is_dropped else [one]

            part = walk.rewrite(loop.body, change)
            part = part if shift == here else self.move(loop, part, shift, {one.name for one in totals.values()})
            if shift != here and not stored.isdisjoint(walk.reads(part)):
                return None
            body += self.guard(loop, part, shift, sizes)
        for one in scattered:
            index = one.index(loop.names)
            for (array, entry), total in totals.items():
                if array == one.array.name:
                    old = nodes.Load(array, index, entry, one.array.type)
                    body.append(nodes.Store(array, index, entry, plus(old, total), loop.line))
        bounds = tuple((constant(0, "i32"), size) for size in sizes)
        return replace(loop, bounds=bounds, body=tuple(body))

    def move(self, loop: nodes.For, body: Sequence[nodes.Stmt], shift: _Shift, kept: set[str]) -> nodes.Block:
        """Statements of the iteration that adds to this one's element from so far away, with locals of their own."""
        fresh = {name: self.names.like(name) for name in sorted(walk.find_defined(body) - kept)}
        moved = {
            name: shift_by(nodes.Local(name, "i32"), -distance)
            for name, distance in zip(loop.names, shift, strict=True)
        }

        def change(one: Any) -> Any:
            if isinstance(one, nodes.Local):
                return moved.get(one.name) or replace(one, name=fresh.get(one.name, one.name))
            return walk.rename_results(_collect(one, loop.names), lambda name: fresh.get(name, name))

        return walk.change_parts(body, change)

    def guard(
        self, loop: nodes.For, body: nodes.Block, shift: _Shift, sizes: Sequence[nodes.Size]
    ) -> Sequence[nodes.Stmt]:
        """Statements that run where the loop as it was has the iteration."""
        condition: nodes.Expr | None = None
        for name, (begin, end), distance, size in zip(loop.names, loop.bounds, shift, sizes, strict=True):
            assert isinstance(begin, nodes.Const)
            variable, tests = nodes.Local(name, "i32"), []
            first, missing = int(begin.value) + distance, (self.ends_before(end, size) or 0) - distance
            if first > 0:
                tests.append(compare(">=", variable, constant(first, "i32")))
            if missing > 0:
                tests.append(compare("<", variable, minus(size, constant(missing, "i32"))))
            for test in tests:
                condition = test if condition is None else nodes.Binary("and", condition, test, "u1")
        return body if condition is None else [nodes.If(condition, body, line=loop.line)]


def _place(
    one: nodes.Atomic, names: Sequence[str], known: Mapping[str, nodes.Expr]
) -> tuple[tuple[int, ...], _Shift] | None:
    """For each name of a loop the axis that it moves, one by one, and how far from it an addition is."""
    axes: dict[str, tuple[int, int]] = {}
    for axis, expr in enumerate(one.index):
        index = affine(expr, known)
        match [*index.terms.items()]:
            case [(str(name), 1)] if name in names and name not in axes:
                axes[name] = axis, index.constant
            case _:
                return None
    pairs = [axes[name] for name in names]
    return tuple(axis for axis, _ in pairs), tuple(shift for _, shift in pairs)


def _collect(expr: Any, names: Sequence[str]) -> Any:
    """`i - 1 + 1` as `i`."""
    if not (isinstance(expr, nodes.Binary) and expr.operator in ("+", "-") and expr.type == "i32"):
        return expr
    index = affine(expr, {})
    match [*index.terms.items()]:
        case [(str(name), 1)] if name in names:
            return shift_by(nodes.Local(name, "i32"), index.constant)
    return expr
