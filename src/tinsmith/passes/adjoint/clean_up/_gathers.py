"""Gathers: iterations that add to adjoints of their neighbors fetch what their neighbors would have added to theirs.

    for i in range(n):                             for i in range(grad_x.shape[0]):
        atomic_add(grad_x[i], grad_y[i])               total = grad_y[i]
        if i > 0:                           ->         if i + 1 < n:
            g = w[i] * grad_y[i]                           g = w[i + 1] * grad_y[i + 1]
            atomic_add(grad_x[i - 1], g)                   total = total + g
                                                       grad_x[i] = grad_x[i] + total

The adjoint of a stencil is a stencil (Hückelheim et al. 2019). It needs no atomic, gives the same bits in each run,
fills each element once (`_whole_gradients`), and can run in machine vectors. The price is that some of an iteration is
computed once more for each neighbor, so this is done only where the atomics would cost more. A loop that runs in
order has no atomics: it gathers only where machine vectors will run it then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....analyses import affine, definitions, find_private_loops, whole_definitions
from ....ir import Names, Operator, Type, compare, constant, minus, nodes, plus, shift_by, types, walk
from ...polish import find_added_value, simplify
from ...strips import is_elementwise, split_edges
from .._flops import SHARED_ATOMIC, count_text_operations
from .._program import AdjointProgram

Extent = Callable[[str, int], object]
"""What is equal for axes of arrays that are known to be equally long: of an array and an axis."""
_Addition = nodes.Atomic | nodes.Store
_Shift = tuple[int, ...]
"""How far from an iteration the element lies that it adds to, for each name of its loop."""
_VECTOR_GAIN = 3
"""A loop that runs in order may do so many times as much more than it did: machine vectors take 4 to 16 at a time."""
_REFUSED = (nodes.For, nodes.While, nodes.Break, nodes.Continue, nodes.Draw, nodes.Decompose, nodes.Barrier, nodes.Vote)


@dataclass(frozen=True, kw_only=True)
class CleanUpOptions:
    """What the clean-up of a backward pass depends on, besides the pass.

    Attributes:
        alone: arrays whose gradients one run of it makes.
        extent: tells which axes are equally long.
        outputs: arrays whose adjoint may be that of an input; None where each sample has a run of its own.
        has_vectors: whether loops that run in order gain by a gather.
    """

    alone: Collection[str]
    extent: Extent
    outputs: Collection[str] | None
    has_vectors: bool


def gather_additions(program: AdjointProgram, options: CleanUpOptions) -> AdjointProgram:
    """Let iterations gather what others would add to their elements, where that costs less."""
    owners = {gradient: array for array, gradient in program.gradients.items()}
    gathered = program.with_kernels(
        lambda kernel: _Kernel(kernel, owners, options.extent).gather(has_vectors=options.has_vectors)
    )
    return program if gathered.kernels == program.kernels else gathered


@dataclass(frozen=True)
class _Place:
    """Where an iteration adds.

    Attributes:
        row: the index, without the loop's names: each axis that one of them moves has that name's number, and the
            others what they are in all iterations.
        shift: how far from the iteration the element lies, for each name.
    """

    row: tuple[int | nodes.Expr, ...]
    shift: _Shift


@dataclass(frozen=True)
class _Scattered:
    """A row of an adjoint that a loop only adds to, near the element of each iteration.

    Attributes:
        row: as in `_Place`.
        shifts: of its additions, each with the statement.
    """

    array: nodes.Array
    row: tuple[int | nodes.Expr, ...]
    shifts: tuple[tuple[_Addition, _Shift], ...]

    def axis(self, number: int) -> int:
        """Return the array's axis that is indexed by the loop variable at this position in the loop's list."""
        return self.row.index(number)

    def index(self, names: Sequence[str]) -> tuple[nodes.Expr, ...]:
        """Return the index, in terms of the loop's variables, of the element that an iteration owns."""
        return tuple(nodes.Local(names[part], Type.I32) if isinstance(part, int) else part for part in self.row)


class _Kernel:
    """Writes one kernel again."""

    def __init__(self, kernel: nodes.Kernel, owners: Mapping[str, str], extent: Extent) -> None:
        self.kernel = kernel
        self.owners = owners
        self.extent = extent
        self.names = Names.of_kernel(kernel)

    def gather(self, *, has_vectors: bool) -> nodes.Kernel:
        """Return the kernel with loops that gather; the same object if no loop gains."""
        body = tuple((self.parallel_loop(one) if walk.is_parallel(one) else None) or one for one in self.kernel.body)
        if has_vectors:
            body = walk.number_statements(body)
            private = find_private_loops(body)
            body = walk.rewrite(body, lambda one: [self.loop_in_order(one) if one.number in private else one])
        if body == self.kernel.body:
            return self.kernel
        kinds = dict(self.names.types)
        body = simplify(body, kinds)
        defined = walk.find_defined(body)
        return replace(self.kernel, body=body, locals={name: kind for name, kind in kinds.items() if name in defined})

    def parallel_loop(self, loop: nodes.For) -> nodes.For | None:
        """Return a loop that gathers what it added by atomics; None if it cannot, or would take longer."""
        scattered = self.find_scattered(loop)
        gathered = self.write(loop, scattered) if scattered else None
        if gathered is None:
            return None
        saved = SHARED_ATOMIC * sum(len(one.shifts) for one in scattered)
        return gathered if self.count_more(loop, gathered) <= saved else None

    def loop_in_order(self, loop: nodes.Stmt) -> nodes.Stmt:
        """Return a loop that gathers what it added in order; the same loop if it would not run in machine vectors."""
        if not isinstance(loop, nodes.For) or loop.is_parallel or not (scattered := self.find_scattered(loop)):
            return loop
        gathered = self.write(loop, scattered)
        if gathered is None or self.count_more(loop, gathered) > _VECTOR_GAIN * count_text_operations([loop]):
            return loop
        # Guards of the first and last iterations keep a loop out of machine vectors, but not its middle (`strips`).
        parts = split_edges(gathered, self.names.types)
        return gathered if is_elementwise(gathered if parts is None else parts.middle, self.kernel) else loop

    def count_more(self, loop: nodes.For, gathered: nodes.For) -> int:
        """Return how many operations more an iteration has if it gathers."""
        kinds = dict(self.names.types)
        return count_text_operations(simplify([gathered], kinds)) - count_text_operations([loop])

    def length(self, expr: nodes.Expr) -> object:
        """Return a key that is equal for sizes of arrays that are known to be equally long."""
        if not isinstance(expr, nodes.Size):
            return expr
        # The options know lengths of arrays of the op. A gradient is as long as its array.
        return self.extent(self.owners.get(expr.array, expr.array), expr.axis)

    def find_scattered(self, loop: nodes.For) -> list[_Scattered]:
        """Return the adjoints that the loop only adds to, and that are as long as it, except at the ends.

        A parallel loop adds by atomics, one that runs in order by stores.
        """
        if loop.block_size or any(isinstance(one, _REFUSED) for one in walk.statements(loop.body)):
            return []
        known = whole_definitions(definitions(loop.body))
        rows: dict[tuple[str, tuple[int | nodes.Expr, ...]], list[tuple[_Addition, _Shift]]] = {}
        for one in walk.stores(loop.body):
            place = _place(one, loop, known) if isinstance(one, nodes.Atomic) == loop.is_parallel else None
            if place is not None:
                rows.setdefault((one.array, place.row), []).append((one, place.shift))
        accesses = [*walk.loads(loop.body), *walk.stores(loop.body)]
        scattered: list[_Scattered] = []
        for (name, row), additions in rows.items():
            array = self.kernel.arrays[name]
            # An addition by a store reads the element, too.
            own = len(additions) if loop.is_parallel else 2 * len(additions)
            others = sum(one.array == name and not _is_apart(row, one.index, known) for one in accesses) - own
            is_plain = name in self.owners and not array.label and not array.offset and types.is_float(array.type)
            one = _Scattered(array, row, tuple(additions))
            if is_plain and not others and all(self.is_within(loop, number, one) for number in range(len(loop.names))):
                scattered.append(one)
        return scattered

    def is_within(self, loop: nodes.For, number: int, one: _Scattered) -> bool:
        """Return True if a name of the loop goes through the axis of an adjoint, but for some indices at either end."""
        begin, end = loop.bounds[number]
        return (
            isinstance(begin, nodes.Const)
            and begin.value >= 0
            and self.ends_before(end, nodes.Size(one.array.name, one.axis(number))) is not None
        )

    def ends_before(self, end: nodes.Expr, size: nodes.Expr) -> int | None:
        """Return how many iterations a loop ends before a size; None if that is unknown, or it goes on beyond."""
        whole = affine(end, {})
        match [*whole.terms.items()]:
            case [(nodes.Size() as other, 1)] if self.length(other) == self.length(size) and whole.constant <= 0:
                return -whole.constant
        return None

    def write(self, loop: nodes.For, scattered: Sequence[_Scattered]) -> nodes.For | None:
        """Write the loop over elements; return None if an iteration reads what another one changes."""
        first = scattered[0]
        sizes = [nodes.Size(first.array.name, first.axis(number)) for number in range(len(loop.names))]
        extents = {self.length(size): size for size in sizes}

        def rename_size(one: Any) -> Any:
            return extents.get(self.length(one), one) if isinstance(one, nodes.Size) else one

        loop = replace(loop, body=walk.number_statements(walk.change_parts(loop.body, rename_size)))
        # Found again, since its statements are new ones, with numbers.
        scattered = self.find_scattered(loop)
        shift_of = {statement.number: shift for one in scattered for statement, shift in one.shifts}
        entry_of = {
            statement.number: (one.array, one.index(loop.names), statement.entry)
            for one in scattered
            for statement, _ in one.shifts
        }
        totals = {
            entry: self.names.local(f"{entry[0].name}_sum", entry[0].type) for entry in dict.fromkeys(entry_of.values())
        }
        body: list[nodes.Stmt] = [
            nodes.Assign(total.name, constant(0, total.type), loop.line) for total in totals.values()
        ]
        here = (0,) * len(loop.names)
        stored = walk.find_changed(loop.body)
        # In a fixed order, so that a sum has the same bits in each run.
        for shift in sorted({here, *shift_of.values()}, key=lambda one: (one != here, one)):

            def change(one: nodes.Stmt, shift: _Shift = shift) -> Sequence[nodes.Stmt]:
                if isinstance(one, _Addition) and one.number in shift_of:
                    value = find_added_value(one)
                    if shift_of[one.number] != shift or value is None:
                        return []
                    total = totals[entry_of[one.number]]
                    return [nodes.Assign(total.name, plus(total, value), one.line)]
                # All else that a neighbor does to memory, it does itself.
                is_dropped = isinstance(one, nodes.Store | nodes.Atomic) and shift != here
                return [] if is_dropped else [one]

            part = walk.rewrite(loop.body, change)
            part = part if shift == here else self.move(loop, part, shift, {one.name for one in totals.values()})
            # A neighbor's part may run here before or after the neighbor itself has changed what it reads.
            if shift != here and not stored.isdisjoint(walk.reads(part)):
                return None
            body += self.guard(loop, part, shift, sizes)
        for (array, index, entry), total in totals.items():
            old = nodes.Load(array.name, index, entry, array.type)
            body.append(nodes.Store(array.name, index, entry, plus(old, total), loop.line))
        bounds = tuple((constant(0, Type.I32), size) for size in sizes)
        return replace(loop, bounds=bounds, body=tuple(body))

    def move(self, loop: nodes.For, body: Sequence[nodes.Stmt], shift: _Shift, kept: set[str]) -> nodes.Block:
        """Return the statements of the iteration that adds to this one's element, with locals of their own."""
        fresh = {name: self.names.like(name) for name in sorted(walk.find_defined(body) - kept)}
        moved = {
            name: shift_by(nodes.Local(name, Type.I32), -distance)
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
        """Put statements under the condition that the old loop has the iteration that they belong to."""
        condition: nodes.Expr | None = None
        for name, (begin, end), distance, size in zip(loop.names, loop.bounds, shift, sizes, strict=True):
            assert isinstance(begin, nodes.Const)
            variable, tests = nodes.Local(name, Type.I32), []
            # Element `e` gets something from iteration `e - distance`, which exists from `begin + distance` on.
            first, missing = int(begin.value) + distance, (self.ends_before(end, size) or 0) - distance
            if first > 0:
                tests.append(compare(Operator.GE, variable, constant(first, Type.I32)))
            if missing > 0:
                tests.append(compare(Operator.LT, variable, minus(size, constant(missing, Type.I32))))
            for test in tests:
                condition = test if condition is None else nodes.Binary(Operator.AND, condition, test, Type.U1)
        return body if condition is None else [nodes.If(condition, body, line=loop.line)]


def _place(one: _Addition, loop: nodes.For, known: Mapping[str, nodes.Expr]) -> _Place | None:
    """Return where a statement adds; None if it does something else, or a name of the loop moves no axis by one."""
    if find_added_value(one) is None:
        return None
    inside, shifts = walk.find_defined([loop]), dict[int, int]()
    row: list[int | nodes.Expr] = []
    for expr in one.index:
        index = affine(expr, known)
        fixed = walk.substitute(expr, known)
        match [*index.terms.items()]:
            case [(str(name), 1)] if name in loop.names and loop.names.index(name) not in shifts:
                number = loop.names.index(name)
                shifts[number] = index.constant
                row.append(number)
            case _ if walk.locals_in([fixed]).isdisjoint(inside) and not walk.reads_memory(fixed):
                row.append(fixed)
            case _:
                return None
    numbers = range(len(loop.names))
    return _Place(tuple(row), tuple(shifts[number] for number in numbers)) if shifts.keys() == {*numbers} else None


def _is_apart(row: Sequence[int | nodes.Expr], index: Sequence[nodes.Expr], known: Mapping[str, nodes.Expr]) -> bool:
    """Return True if an element lies in another row, by an axis that the loop moves in neither."""
    pairs = (
        (affine(part, {}), affine(expr, known))
        for part, expr in zip(row, index, strict=True)
        if not isinstance(part, int)
    )
    return any(part.plus(other, -1).number not in (None, 0) for part, other in pairs)


def _collect(expr: Any, names: Sequence[str]) -> Any:
    """Fold the constants of an index that is a loop variable plus constants: `i - 1 + 1` becomes `i`."""
    if not (isinstance(expr, nodes.Binary) and expr.operator in (Operator.ADD, Operator.SUB) and expr.type == Type.I32):
        return expr
    index = affine(expr, {})
    match [*index.terms.items()]:
        case [(str(name), 1)] if name in names:
            return shift_by(nodes.Local(name, Type.I32), index.constant)
    return expr
