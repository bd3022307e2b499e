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
from ..engines import COMPILING, DTYPES
from ..source.ir import nodes, walk
from ..transforms.adjoint import Copy, TapeSize, evaluated
from ._buffers import Makers, unread
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
        dtypes: of the call's arrays.
        given: names of the memory that a run is given, in order.
        makes: memory that it makes first, once for all samples.
        actions: what it does then, in order.
        likes: the array whose sizes given memory has, where that has another name.
        arrays: what is known of arrays that are not the call's, by name: ranks of 0, or the call's private memory.
        is_looped: whether samples of a batch are run one by one.

    What a run returns is the memory that it was given and that it made, in that order.
    """

    op: str
    dtypes: Mapping[str, torch.dtype]
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
        tapes = {name: kind for one in self.tapes for size in one.sizes for name, kind, _ in size.arrays}
        known = [*self.given, *(one.name for one in self.makes), *tapes]
        touched = [name for one in (*self.launches, *counting) for name in one.memory]
        self.places = {name: place for place, name in enumerate(dict.fromkeys([*known, *touched]))}
        given = (Make(name, like) for name, like in self.likes.items())
        copies = (Make(one.name, one.of) for one in self.actions if isinstance(one, Copy))
        self._likes = {one.name: one for one in (*given, *self.makes, *own, *copies) if one.name != one.like}
        self.kinds = tuple([(self.dtype(one.name), one.is_zero) for one in self.makes])
        self.kinds += tuple([(DTYPES[kind], False) for kind in tapes.values()]) if self.is_straight else ()
        self.first: dict[Launch, Step] = {}

    def dtype(self, name: str) -> torch.dtype:
        """Of some memory, but for tapes."""
        while name in self._likes:
            name = self._likes[name].like
        return self.dtypes[name] if name in self.dtypes else DTYPES[self.arrays[name].type]

    def wholes(self, situation: Situation) -> Mapping[str, tuple[int, ...]]:
        """Sizes of all memory but tapes, as the whole batch has it."""
        if not (self.arrays or self._likes):
            return situation.shapes
        found = dict(situation.shapes)
        lead = () if situation.batch is None else (situation.batch,)
        for name, array in self.arrays.items():
            if name not in found and not array.label:
                private = situation.private.get(name)
                assert private is not None or array.rank == 0, array
                found[name] = () if private is None else (*lead, *private)
        for name, one in self._likes.items():
            found[name] = (*lead, *found[one.like]) if one.is_wide else found[one.like]
        return found

    def parts(self, situation: Situation, wholes: Mapping[str, tuple[int, ...]]) -> Mapping[str, tuple[int, ...]]:
        """The same as a launch has it: of one sample, where samples run one by one."""
        if not self.is_looped:
            return wholes
        return {name: shape[1:] if self.is_batched(situation, name) else shape for name, shape in wholes.items()}

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
        wholes = layout.wholes(situation)
        self.shapes: Mapping[str, tuple[int, ...]] = layout.parts(situation, wholes)
        self.tape_bytes = 0
        self._depths: dict[str, int] = {}
        made = [wholes[one.name] for one in layout.makes]
        if layout.is_straight and layout.tapes:
            tapes = self._reserve_all()
            made += tapes.values()
            self.shapes = {**self.shapes, **tapes}
        self._makers = Makers(made, layout.kinds, situation.device)
        self._steps: tuple[Step, ...] = ()
        self._found: dict[Launch, Step] = {}

    def resize(self, situation: Situation) -> Executor:
        """The same program for other sizes."""
        return Executor(self.layout, situation)

    def run(
        self, given: Sequence[torch.Tensor], scalars: Mapping[str, Any], launch: Launches
    ) -> Sequence[torch.Tensor]:
        """Run the program on memory that is its `given`. Returns that, and what it made first."""
        makers = self._makers
        memory = [*given, *([make() for make in makers.now] if makers.now else makers.make())]
        if not self.layout.is_straight:
            self._run_in_turn(memory, scalars, launch)
            return memory
        steps = self._steps or self._make_steps()
        pointers = [tensor.data_ptr() for tensor in memory]
        pointers.append(0)
        launch(steps, pointers, {**scalars, **self._depths} if self._depths else scalars)
        return memory

    def _make_steps(self) -> tuple[Step, ...]:
        self._steps = tuple([self.step(one, self.shapes) for one in self.layout.launches])
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

    def _reserve_all(self) -> dict[str, tuple[int, ...]]:
        """Sizes of all tapes; their depth is told to the kernels by arguments."""
        found: dict[str, tuple[int, ...]] = {}
        for one in self.layout.tapes:
            assert one.iterations is not None
            iterations = evaluated(one.iterations, self.shapes, {})
            for size in one.sizes:
                assert size.depth is not None
                name, formula = size.depth
                self._depths[name] = evaluated(formula, self.shapes, {})
                for tape, kind, width in size.arrays:
                    count = iterations * self._depths[name] * width
                    check_tape(self.layout.op, count)
                    self.tape_bytes += count * DTYPES[kind].itemsize
                    found[tape] = (count,)
        return found

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
                    shape, dtype = self.executor.shapes[name], self.layout.dtype(name)
                    self.put(name, torch.zeros(shape, dtype=dtype, device=self.device))
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
        if not self.memory.keys().isdisjoint(tapes.names):
            # Launches that wait work on tapes of these names, and were told their depth by arguments of one name.
            self.flush()
        own = {name: self.scalars[called] for name, called in tapes.renamed.items()}
        scalars = {**self.scalars, **own}
        if tapes.counts_iterations is not None:
            self.put(tapes.total, self.zeros(1).reshape(()), is_taped=True)
            self.count(tapes.counts_iterations)
            iterations = int(self.memory[tapes.total])
        else:
            assert tapes.iterations is not None
            iterations = evaluated(tapes.iterations, self.shapes, scalars)
        depths = {one.depth[0]: evaluated(one.depth[1], self.shapes, scalars) for one in tapes.sizes if one.depth}
        self.scalars |= depths
        entries = {size: iterations * depths[size.depth[0]] for size in tapes.sizes if size.depth}
        entries |= self.count_entries(tapes, iterations)
        for size in tapes.sizes:
            for name, kind, width in size.arrays:
                count = entries[size] * width
                check_tape(self.layout.op, count)
                self.put(name, unread((count,), DTYPES[kind], self.device), is_taped=True)

    def count_entries(self, tapes: Tapes, iterations: int) -> dict[TapeSize, int]:
        """Entries of tapes for which a kernel has to count."""
        if tapes.counts_entries is None:
            return {}
        sizes = [(size, size.starts) for size in tapes.sizes if size.starts is not None]
        for _, (_, counts) in sizes:
            self.put(counts, self.zeros(iterations), is_taped=True)
        self.count(tapes.counts_entries)
        found = {}
        for size, (starts, counts) in sizes:
            ends = self.memory[counts].cumsum(0)
            self.put(starts, (ends - self.memory[counts]).int(), is_taped=True)
            found[size] = int(ends[-1]) if iterations else 0
        return found

    def zeros(self, count: int) -> torch.Tensor:
        """Numbers to count with."""
        check_tape(self.layout.op, count)
        return torch.zeros(count, dtype=torch.int32, device=self.device)


def check_tape(op: str, count: int) -> None:
    """Refuse a tape of more numbers than engines can count. Raises GradientError."""
    if count > LARGEST_TAPE:
        words = f"the backward pass of op `{op}` needs a tape of {count} numbers, more than engines can count"
        remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
        raise GradientError(refusal(words, [("largest", str(LARGEST_TAPE))], remedy))
