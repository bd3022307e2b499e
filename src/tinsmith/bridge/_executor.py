"""Executor: a program over named memory, run.

Forward passes, reverse kernels of an engine or of a user, generated backward passes and derivatives of any order are
programs: memory that a run is given, memory that it makes, and launches. A `Layout` describes one for all sizes, an
`Executor` runs it for one set of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from .._errors import GradientError, refusal
from .._lazy import lazy
from ..engines import COMPILING, DTYPES, one_at_a_time
from ..source.ir import nodes, walk
from ..transforms.adjoint import Copy, TapeSize, evaluated
from ._buffers import Buffer, Makers, unread, zeros
from ._steps import Situation, Step

Launches = Callable[[Sequence[Step], Sequence[int], Mapping[str, Any]], None]
"""What runs steps on pointers, with scalars: the plan's own way of launching."""
Shapes = Mapping[str, Sequence[int]]
LARGEST_TAPE = 2**31 - 1
"""Numbers on a tape: engines count elements in 32 bits."""


class Launch(Protocol):
    """A launch of a program, on memory that it knows by name."""

    @property
    def memory(self) -> Sequence[str]:
        """Names of what it works on."""
        ...

    def step(self, situation: Situation, places: Mapping[str, int], shapes: Shapes) -> Step:
        """The launch, compiled, for memory of these sizes; each at its place among the pointers."""
        ...


@dataclass(frozen=True)
class Make:
    """Memory with the sizes and the dtype of an array; at zero, or with any content. One for each sample if wide."""

    name: str
    like: str
    is_zero: bool = True
    is_wide: bool = False


@dataclass(frozen=True)
class Tapes:
    """Room for a task's tapes.

    Attributes:
        sizes: how large each is to be.
        iterations: how many parallel iterations the task has; None where `counts_iterations` stores it in `total`.
        counts_entries: counts, where a tape has no formula, what each iteration needs.
        renamed: the op's names for the arguments in formulas.
    """

    sizes: tuple[TapeSize, ...]
    iterations: nodes.Expr | None
    total: str
    counts_iterations: Launch | None
    counts_entries: Launch | None
    renamed: Mapping[str, str]

    @property
    def is_fixed(self) -> bool:
        """Whether sizes alone tell how long they are."""
        if self.counts_entries is not None or self.iterations is None:
            return False
        formulas = [self.iterations, *(size.depth[1] for size in self.sizes if size.depth)]
        return not any(isinstance(one, nodes.Argument) for formula in formulas for one in walk.parts(formula))

    @property
    def names(self) -> list[str]:
        """Names of all memory whose size only a run tells."""
        starts = [name for size in self.sizes for name in size.starts or ()]
        return [*(name for size in self.sizes for name, _, _ in size.arrays), *starts, self.total]

    @property
    def launches(self) -> list[Launch]:
        """Kernels that count."""
        return [one for one in (self.counts_iterations, self.counts_entries) if one is not None]


Action = Launch | Make | Copy | Tapes


@dataclass(eq=False)
class Layout:
    """A program, whatever the sizes are.

    Attributes:
        op: its name, for messages.
        given: names of the memory that a run is given, in order.
        makes: memory that it makes first, once for all samples.
        actions: what it does then, in order.
        likes: the array whose sizes given memory has, where that has another name.
        arrays: what is known of arrays that are not the call's, by name: ranks of 0, or the call's private memory.
        is_looped: whether samples of a batch are run one by one.

    What a run returns is the memory that it was given and that it made, in that order.
    """

    op: str
    given: tuple[str, ...]
    makes: tuple[Make, ...]
    actions: tuple[Action, ...]
    likes: Mapping[str, str] = field(default_factory=dict)
    arrays: Mapping[str, nodes.Array] = field(default_factory=dict)
    is_looped: bool = False

    def __post_init__(self) -> None:
        """Find everything a place, and whether launches can go out together."""
        own = [one for one in self.actions if isinstance(one, Make)]
        names = [one.name for one in own]
        self.tapes = tuple(one for one in self.actions if isinstance(one, Tapes))
        self.is_straight = not (
            self.is_looped
            or any(isinstance(one, Copy) for one in self.actions)
            or len(set(names)) < len(names)
            or not all(one.is_fixed for one in self.tapes)
        )
        if self.is_straight:
            self.makes += tuple(own)
            self.actions = tuple(one for one in self.actions if not isinstance(one, Make))
        self.launches: tuple[Launch, ...] = tuple(
            one for one in self.actions if not isinstance(one, (Make, Copy, Tapes))
        )
        counting = (launch for one in self.tapes for launch in one.launches)
        tapes = (name for one in self.tapes for size in one.sizes for name, _, _ in size.arrays)
        known = [*self.given, *(one.name for one in self.makes), *tapes]
        touched = [name for one in (*self.launches, *counting) for name in one.memory]
        self.places = {name: place for place, name in enumerate(dict.fromkeys([*known, *touched]))}
        given = (Make(name, like) for name, like in self.likes.items())
        copies = (Make(one.name, one.of) for one in self.actions if isinstance(one, Copy))
        self._likes = {one.name: one for one in (*given, *self.makes, *own, *copies) if one.name != one.like}
        self.first: dict[Launch, Step] = {}

    def buffers(self, situation: Situation) -> Mapping[str, Buffer]:
        """All memory but tapes, as the whole batch has it."""
        if not (self.arrays or self._likes):
            return situation.buffers
        found = dict(situation.buffers)
        lead = () if situation.batch is None else (situation.batch,)
        for name, array in self.arrays.items():
            if name not in found and not array.label:
                private = situation.private.get(name)
                found[name] = Buffer(name, () if private is None else (*lead, *private), DTYPES[array.type])
        for name, one in self._likes.items():
            like = found[one.like]
            found[name] = like._replace(shape=(*lead, *like.shape)) if one.is_wide else like
        return found

    def shapes(self, situation: Situation, buffers: Mapping[str, Buffer]) -> dict[str, tuple[int, ...]]:
        """Sizes of all memory but tapes, as a launch has it."""
        shapes = {name: buffer.shape for name, buffer in buffers.items()}
        if self.is_looped:
            shapes |= {name: shape[1:] for name, shape in shapes.items() if self.is_batched(situation, name)}
        return shapes

    def is_batched(self, situation: Situation, name: str) -> bool:
        """Whether memory has a batch dimension."""
        while name in self._likes:
            name = self._likes[name].like
        return name in situation.batched or name in situation.private


class Executor:
    """A layout for one set of sizes.

    Attributes:
        tape_bytes: of tapes whose length follows from sizes.
    """

    def __init__(self, layout: Layout, situation: Situation) -> None:
        self.layout = layout
        self.situation = situation
        self.buffers = layout.buffers(situation)
        self._depths: dict[str, int] = {}
        self._tape_shapes: dict[str, tuple[int, ...]] = {}
        tapes = self._reserve_all() if layout.is_straight and layout.tapes else []
        self.tape_bytes = sum([tape.shape[0] * tape.dtype.itemsize for tape in tapes])
        made = [(self.buffers[one.name], one.is_zero) for one in layout.makes]
        self._makers = Makers([*made, *[(tape, False) for tape in tapes]], situation.device)
        self._steps: tuple[Step, ...] = ()
        self._found: dict[Launch, Step] = {}

    def resize(self, situation: Situation) -> Executor:
        """The same program for other sizes."""
        return Executor(self.layout, situation)

    @lazy
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Sizes of all memory but tapes that a run measures."""
        return self.layout.shapes(self.situation, self.buffers) | self._tape_shapes

    def run(
        self, given: Sequence[torch.Tensor], scalars: Mapping[str, Any], launch: Launches
    ) -> Sequence[torch.Tensor]:
        """Run the program on memory that is its `given`. Returns that, and what it made first."""
        makers = self._makers
        memory = [*given, *[make() for make in makers.now or makers.find()]]
        if not self.layout.is_straight:
            self._run_in_turn(memory, scalars, launch)
            return memory
        steps = self._steps or self._make_steps()
        pointers = [tensor.data_ptr() for tensor in memory]
        pointers.append(0)
        launch(steps, pointers, {**scalars, **self._depths} if self._depths else scalars)
        return memory

    @one_at_a_time
    def _make_steps(self) -> tuple[Step, ...]:
        self._steps = self._steps or tuple([self.step(one, self.shapes) for one in self.layout.launches])
        return self._steps

    def step(self, launch: Launch, shapes: Shapes) -> Step:
        """A launch on memory of these sizes. It is compiled for the first ones."""
        first = self.layout.first.get(launch)
        if first is not None and first.sized:
            return first.resize(shapes)
        with COMPILING:
            found = launch.step(self.situation, self.layout.places, shapes)
            self.layout.first.setdefault(launch, found)
        return found

    def fixed_step(self, launch: Launch) -> Step:
        """A launch whose memory has the same sizes in each run."""
        found = self._found.get(launch)
        if found is None:
            found = self._found[launch] = self.step(launch, self.shapes)
        return found

    def _reserve_all(self) -> list[Buffer]:
        """Memory of all tapes; their depth is told to the kernels by arguments."""
        found: dict[str, Buffer] = {}
        shapes = self.layout.shapes(self.situation, self.buffers)
        for one in self.layout.tapes:
            assert one.iterations is not None
            iterations = evaluated(one.iterations, shapes, {})
            for size in one.sizes:
                assert size.depth is not None
                name, formula = size.depth
                self._depths[name] = evaluated(formula, shapes, {})
                for tape, kind, width in size.arrays:
                    found[tape] = _tape(self.layout.op, tape, kind, iterations * self._depths[name] * width)
                    self._tape_shapes[tape] = found[tape].shape
        return list(found.values())

    def _run_in_turn(self, memory: Sequence[torch.Tensor], scalars: Mapping[str, Any], launch: Launches) -> None:
        """Run a program that copies, counts, or goes sample by sample."""
        named = dict(zip(self.layout.places, memory, strict=False))
        if not self.layout.is_looped:
            _Pass(self, named, scalars, launch).run()
            return
        batched = {name for name in named if self.layout.is_batched(self.situation, name)}
        for sample in range(self.situation.batch or 0):
            views = {name: one[sample] if name in batched else one for name, one in named.items()}
            _Pass(self, views, scalars, launch).run()


class _Pass:
    """One run, action by action; launches that nothing comes between go out together."""

    def __init__(
        self, executor: Executor, memory: dict[str, torch.Tensor], scalars: Mapping[str, Any], launch: Launches
    ) -> None:
        self.executor = executor
        self.layout = executor.layout
        self.device = executor.situation.device
        self.memory = memory
        known = (memory.get(name) for name in executor.layout.places)
        self.pointers = [*(0 if one is None else one.data_ptr() for one in known), 0]
        self.shapes: dict[str, Sequence[int]] = dict(executor.shapes)
        self.scalars = dict(scalars)
        self.launch = launch
        self.waiting: list[Step] = []
        self.taped: set[str] = set()

    def run(self) -> None:
        for action in self.layout.actions:
            match action:
                case Make(name):
                    buffer = Buffer(name, tuple(self.executor.shapes[name]), self.executor.buffers[name].dtype)
                    self.put(name, zeros(buffer, self.device))
                case Copy(name, of):
                    self.flush()
                    self.put(name, self.memory[of].clone())
                case Tapes():
                    self.reserve(action)
                case _:
                    self.waiting.append(self.step(action))
        self.flush()

    def step(self, launch: Launch) -> Step:
        if self.taped.isdisjoint(launch.memory):
            return self.executor.fixed_step(launch)
        return self.executor.step(launch, self.shapes)

    def flush(self) -> None:
        """Let the launches go that wait."""
        if self.waiting:
            self.launch(self.waiting, self.pointers, self.scalars)
            self.waiting = []

    def put(self, name: str, tensor: torch.Tensor, *, is_taped: bool = False) -> None:
        """Give memory a name, which other memory may have had: of launches that wait."""
        if name in self.memory:
            self.flush()
        self.memory[name] = tensor
        self.shapes[name] = tensor.shape
        place = self.layout.places.get(name)
        if place is not None:
            self.pointers[place] = tensor.data_ptr()
        if is_taped:
            self.taped.add(name)

    def count(self, launch: Launch) -> None:
        """Launch, and wait until it is asked for."""
        self.waiting.append(self.step(launch))
        self.flush()

    def reserve(self, tapes: Tapes) -> None:
        """Make room for a task's tapes."""
        own = {name: self.scalars[called] for name, called in tapes.renamed.items()}
        scalars = {**self.scalars, **own}
        if tapes.counts_iterations is not None:
            self.put(tapes.total, self.zeros(tapes.total, 1).reshape(()), is_taped=True)
            self.count(tapes.counts_iterations)
            iterations = int(self.memory[tapes.total])
        else:
            assert tapes.iterations is not None
            iterations = evaluated(tapes.iterations, self.shapes, scalars)
        depths = {one.depth[0]: evaluated(one.depth[1], self.shapes, scalars) for one in tapes.sizes if one.depth}
        self.scalars |= depths
        entries = {size: iterations * depths[size.depth[0]] for size in tapes.sizes if size.depth}
        entries |= self.counted(tapes, iterations)
        for size in tapes.sizes:
            for name, kind, width in size.arrays:
                buffer = _tape(self.layout.op, name, kind, entries[size] * width)
                self.put(name, unread(buffer, self.device), is_taped=True)

    def counted(self, tapes: Tapes, iterations: int) -> dict[TapeSize, int]:
        """Entries of tapes for which a kernel has to count."""
        if tapes.counts_entries is None:
            return {}
        sizes = [(size, size.starts) for size in tapes.sizes if size.starts is not None]
        for _, (_, counts) in sizes:
            self.put(counts, self.zeros(counts, iterations), is_taped=True)
        self.count(tapes.counts_entries)
        found = {}
        for size, (starts, counts) in sizes:
            ends = self.memory[counts].cumsum(0)
            self.put(starts, (ends - self.memory[counts]).int(), is_taped=True)
            found[size] = int(ends[-1]) if iterations else 0
        return found

    def zeros(self, name: str, count: int) -> torch.Tensor:
        return zeros(_tape(self.layout.op, name, "i32", count), self.device)


def _tape(op: str, name: str, kind: str, count: int) -> Buffer:
    """Memory of so many numbers. Raises GradientError for more than engines can count."""
    if count > LARGEST_TAPE:
        words = f"the backward pass of op `{op}` needs a tape of {count} numbers, more than engines can count"
        remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
        raise GradientError(refusal(words, [("largest", str(LARGEST_TAPE))], remedy))
    return Buffer(name, (count,), DTYPES[kind])
