"""One task's part of a backward pass: its reverse as a kernel, with its tapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ....ir import ONE, ZERO, Type, nodes, plus, types, walk
from ..._slots import trips_of
from ...polish import eliminate_dead_code, name_locals, simplify
from .._plan import Decision, ResultRoom, TaskPlan, describe_loop
from .._program import Reserve, Run
from .._tapes import Tape, TapeSize, size_tape
from .._tasks import Task, kernel_of
from ._counting import Counting, Formula
from ._frame_reversal import FrameReversal
from ._loop_results import LoopResults
from ._loop_reversal import LoopReversal, run_downwards

Block = list[nodes.Stmt]


@dataclass(frozen=True)
class KeptResults:
    """What a forward pass may keep so that the reverse need not run loops forward.

    Attributes:
        forward: the task, which stores it too; `backward` the reverse that reads it.
        sizes: the memory, for each of the parallel `iterations`.
    """

    forward: nodes.Kernel
    backward: nodes.Kernel
    sizes: tuple[TapeSize, ...]
    iterations: nodes.Expr


@dataclass(frozen=True)
class TaskReverse:
    """A task's reverse: tapes to reserve, the launch; arrays that it changes for itself and puts back.

    `taped` are the loops whose tapes checkpoints make shorter; `results` what the forward pass may keep of loops.
    """

    reserve: Reserve | None
    kernel: nodes.Kernel
    state: frozenset[str]
    settled: frozenset[str]
    decisions: tuple[Decision, ...]
    notes: tuple[str, ...]
    taped: frozenset[int]
    results: KeptResults | None = None


def write_task(task: Task, plan: TaskPlan) -> TaskReverse:
    """Write the reverse of a task as planned."""
    reverse = write_without_results(task, plan)
    if plan.results is None:
        return reverse
    return replace(reverse, results=_Writing(task, plan).keep_results(plan.results))


def write_without_results(task: Task, plan: TaskPlan) -> TaskReverse:
    """Write the reverse of a task as planned, except that it computes again what a forward pass could have kept."""
    writing = _Writing(task, plan)
    body = writing.write_body()
    count = None if body.reserve is None else body.reserve.count
    if count is not None and _may_round_differently(count.kernel):
        # Written again, since only what is written tells which tapes it has, and whether their entries are counted.
        writing = _Writing(task, plan, frozenset(tape.key for tape in body.tapes))
        body = writing.write_body()
    return writing.reverse(body)


def _may_round_differently(kernel: nodes.Kernel) -> bool:
    """Return True if a kernel computes floats: compilers may round them differently in another kernel."""
    steady = nodes.Load | nodes.Local | nodes.Const | nodes.Argument
    return any(
        isinstance(one, nodes.Atomic) or (types.is_float(one.type) and not isinstance(one, steady))
        for one in [*walk.stores(kernel.body), *walk.parts_in(kernel.body)]
        if not isinstance(one, nodes.Store)
    )


class _Body(NamedTuple):
    """The body of a reversed loop, before its tapes are allocated.

    Attributes:
        statements: as they are written.
        whole: the task's loop around them, without dead code.
        tapes: those that are read.
        reserve: what reserves the tapes; None if there are none.
    """

    statements: Block
    whole: nodes.Block
    tapes: Sequence[Tape]
    reserve: Reserve | None


class _Writing:
    """Writes the reverse of a task as planned."""

    def __init__(self, task: Task, plan: TaskPlan, guarded: frozenset[str] = frozenset()) -> None:
        self.task = task
        self.plan = plan
        self.state = plan.state
        self.names = task.names.copy()
        self.frames = FrameReversal(task, plan.state, self.names)
        self.loops = LoopReversal(self.frames, lambda _writer, loop, _inner, _known: plan.of_loop(loop))
        self.loops.guarded = guarded
        self.results: LoopResults | None = None

    def write_body(self) -> _Body:
        """Write what an iteration does, and find the tapes that it reads."""
        names = () if self.task.parallel is None else self.task.parallel.names
        body = self.frames.frame(self.task.body, names).whole
        whole = self.without_dead_code(body)
        read = walk.reads(whole)
        tapes = [tape for tape in self.loops.tapes.by_key.values() if tape.array in read]
        return _Body(body, whole, tapes, self.reserve(tapes, read) if tapes else None)

    def reverse(self, body: _Body) -> TaskReverse:
        """Build the kernel of the reverse, and what reserves its tapes, from the body of an iteration."""
        tapes, reserve = body.tapes, body.reserve
        sizes = reserve.tapes if reserve else ()
        starts = [
            nodes.Assign(tape.top.name, size.first_entry(self.task.place))
            for tape, size in zip(tapes, sizes, strict=True)
        ]
        for tape, size in zip(tapes, sizes, strict=True):
            if tape.key in self.loops.limits:
                assert size.starts is not None
                counted = nodes.Load(size.starts[1], (self.task.place,), (), Type.I32)
                starts.append(nodes.Assign(self.loops.limits[tape.key].name, plus(tape.top, counted)))
        # Where an iteration's part of a tape starts follows from the sizes, so it is written after these are known.
        whole = self.without_dead_code([*starts, *body.statements]) if starts else body.whole
        kernel = self.kernel("adjoint", whole, reserve)
        used = {tape.key for tape in tapes}
        decisions, notes = tuple(self.describe(used)), tuple(self.describe_order(body.statements))
        return TaskReverse(reserve, kernel, self.state, self.plan.settled, decisions, notes, self.find_long_loops(used))

    def without_dead_code(self, body: Block) -> nodes.Block:
        """Return the task's loop with these statements as its body, after dead-code elimination."""
        # Tapes too: what is kept of state that decides over no adjoint would ask for memory that nobody saved.
        return eliminate_dead_code([self.around(body)], private=self.state | self.find_tape_arrays())

    def keep_results(self, results: ResultRoom) -> KeptResults | None:
        """Write the forward pass that keeps values of loops, and its reverse; None if no loop's run can be left out."""
        assert self.task.parallel is not None
        self.results = self.loops.results = LoopResults(self.names, results)
        body = self.frames.frame(self.task.body, self.task.parallel.names).whole
        # What goes on a tape that nobody reads would ask for memory: the tapes of this form have none.
        backward = self.kernel("adjoint", eliminate_dead_code([self.around(body)], private=self.find_tape_arrays()))
        read = walk.reads(backward.body)
        self.results.arrays = {local: one for local, one in self.results.arrays.items() if one.name in read}
        # A tape is filled by a loop that runs forward in the backward pass, which is what this form is to do without.
        if not self.results.arrays or any(tape.array in read for tape in self.loops.tapes.by_key.values()):
            return None
        # A forward pass keeps the order of iterations that the user wrote.
        self.frames.is_forward_pass, self.frames.runs_back = True, False
        forward = self.kernel("forward", eliminate_dead_code([self.around(self.frames.forward(self.task.body))]))
        return KeptResults(forward, backward, self.results.sizes, results.iterations)

    def find_tape_arrays(self) -> set[str]:
        """Return the names of the arrays in which the tapes of this task are stored."""
        return {name for tape in self.loops.tapes.by_key.values() for name in (tape.array, tape.where)}

    def find_long_loops(self, used: set[str]) -> frozenset[int]:
        """Return the loops whose tapes would be shorter in blocks, except those that log what they overwrite.

        Whether one block reads what another one stores is not looked into: loops that do both stay as they are.
        """
        both = walk.find_loaded(self.task.steps) & self.task.changed_arrays
        numbers = set[int]()
        for step in walk.statements(self.task.body):
            kept = self.loops.plans.get(step.number)
            if not isinstance(step, nodes.Loop) or kept is None or kept.logged or len(step.names) > 1:
                continue
            is_apart = both.isdisjoint(store.array for store in walk.stores(step.body))
            if is_apart and any(types.keeping(self.names.types[name]) in used for name in kept.taped):
                numbers.add(step.number)
        return frozenset(numbers)

    def describe(self, used: set[str]) -> Iterator[Decision]:
        """Yield descriptions of what was decided for each loop, for example what its tapes keep."""
        for step in walk.statements(self.task.body):
            if isinstance(step, nodes.Loop) and step.number in self.loops.plans:
                yield from describe_loop(step, self.loops.plans[step.number], self.task.kernel, self.names, used)

    def around(self, body: Block) -> nodes.Stmt:
        """Return the task's loop around the statements of one iteration; a serial task is a loop of one iteration."""
        loop = self.task.parallel
        if loop is None:
            return nodes.For((self.names.fresh("once", Type.I32),), ((ZERO, ONE),), tuple(body))
        is_parallel = not self.find_disturbed(body)
        if not self.frames.runs_back:
            return nodes.For(loop.names, loop.bounds, tuple(body), is_parallel, loop.line)
        # Iterations of a parallel loop have no order, but a processor fetches ahead in one direction only, and loops
        # inside run backwards: rows in the opposite order of their elements took twice the time.
        return run_downwards(replace(loop, is_parallel=is_parallel), body, self.names)

    def find_disturbed(self, body: Block) -> frozenset[str]:
        """Return the arrays whose elements one iteration restores while another one may be about to read them.

        Both stored the same value to the element. If there is such an array, the iterations run in order.
        """
        return ((self.state & self.task.restored_arrays) - self.task.own) & walk.find_changed(body)

    def describe_order(self, body: Block) -> Iterator[str]:
        """Say why the iterations of a parallel loop run in order."""
        loop = self.task.parallel
        if loop is not None and (disturbed := self.find_disturbed(body)):
            names = ", ".join(f"`{name}`" for name in sorted(disturbed))
            reason = f"its iterations restore elements of {names} that other iterations read"
            yield f"in order: the loop in line {loop.line}, because {reason}"

    def kernel(self, word: str, body: Sequence[nodes.Stmt], reserve: Reserve | None = None) -> nodes.Kernel:
        """Build a kernel from statements, with those of the task's arrays and arguments that they use."""
        task = self.task
        before = self.before() if self.task.parallel is not None else ()
        kinds = dict(self.names.types)
        written = simplify((*before, *body), kinds)
        statements = _size_by_gradients(written, task)
        arguments = {**task.kernel.arguments, **(reserve.arguments if reserve else {})}
        name = f"{task.kernel.name}_{word}_{task.number}"
        made = kernel_of(task.kernel, name, statements, self.arrays(reserve), arguments)
        used = {*made.arrays, *made.arguments}
        # People read these kernels (`tinsmith adjoint`), so locals get back the names of the source.
        statements, new = name_locals(statements, self.names.root, used, task.kernel.locals)
        return replace(made, locals={new[old]: kind for old, kind in kinds.items() if old in new}, body=statements)

    def before(self) -> nodes.Block:
        """Return the assignments before the task's parallel loop, which compute the bounds of the loop."""
        return tuple(step for step in self.task.steps[:-1] if isinstance(step, nodes.Assign))

    def arrays(self, reserve: Reserve | None) -> dict[str, nodes.Array]:
        task = self.task
        arrays = dict(task.kernel.arrays)
        for name, gradient in task.gradients.items():
            if name not in arrays:
                continue
            arrays[gradient] = replace(arrays[name], name=gradient, label="")
        for tape in self.loops.tapes.by_key.values():
            arrays[tape.array] = nodes.Array(tape.array, tape.type, 1)
            if tape.where:
                arrays[tape.where] = nodes.Array(tape.where, Type.I32, 1)
        if reserve is not None:
            arrays |= reserve.arrays
        if self.results is not None:
            arrays |= {one.name: one for one in self.results.arrays.values()}
        return arrays

    # Tapes ------------------------------------------------------------------------------------

    def reserve(self, tapes: list[Tape], read: set[str]) -> Reserve:
        formulas = Formula(self.names, self.loops.plans, self.task.definitions).need(self.task.body)
        sizes = []
        for tape in tapes:
            arrays = [(tape.array, tape.type, tape.width)]
            # Nobody reads the indices of a regular log, and an array without dims has none.
            arrays += [(tape.where, Type.I32, tape.rank)] if tape.where in read and tape.rank else []
            most = formulas[tape.key] if formulas is not None and self.task.iterations is not None else None
            sizes.append(size_tape(self.names, tape.label, tuple(arrays), most))
        total = self.names.reserve_shared("iterations")
        known = self.task.iterations
        plain = Reserve(tuple(sizes), ZERO, total, None)
        iterations = known if known is not None else Run(self.build_measuring_kernel(plain), 0, {})
        # Either all tapes have a formula or none has: `Formula` answers for all of them together.
        count = None if any(size.depth for size in sizes) else Run(self.build_counting_kernel(tapes, plain), 0, {})
        return Reserve(tuple(sizes), iterations, total, count)

    def build_counting_kernel(self, tapes: list[Tape], reserve: Reserve) -> nodes.Kernel:
        """Build the kernel that counts how many tape entries each parallel iteration needs."""
        counting = Counting(self.names, self.loops.plans, {tape.key: tape for tape in tapes}, self.state)
        body, need = counting.count_frame(self.task.body)
        for tape, size in zip(tapes, reserve.tapes, strict=True):
            assert size.starts is not None
            body.append(nodes.Store(size.starts[1], (self.task.place,), (), nodes.Local(need[tape.key], Type.I32)))
        return self.kernel("count", eliminate_dead_code([self.around(body)], private=self.state), reserve)

    def build_measuring_kernel(self, reserve: Reserve) -> nodes.Kernel:
        """Build the kernel that stores how many parallel iterations there are, if bounds are read from memory."""
        assert self.task.parallel is not None
        total = nodes.Store(reserve.total, (), (), trips_of(self.task.parallel.bounds))
        return self.kernel("iterations", [total], reserve)


def _size_by_gradients(statements: nodes.Block, task: Task) -> nodes.Block:
    """Take sizes from the gradient of an array, which has the same shape, if only the array's sizes are used.

    Then the array itself need not be an argument of the kernel.
    """
    touched, arrays = walk.find_touched(statements), task.kernel.arrays
    instead = {
        name: gradient
        for name, gradient in task.gradients.items()
        if name in arrays and not arrays[name].label and name not in touched and gradient in touched
    }

    def change(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        return replace(one, array=instead[one.array]) if isinstance(one, nodes.Size) and one.array in instead else one

    return walk.change_parts(statements, change) if instead else statements
