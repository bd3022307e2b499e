"""Runner: a generated backward pass, run.

Memory goes by name: values of the op's arrays, adjoints, copies that tasks work on, and tapes. What a call's
values do not decide is laid out once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..._errors import GradientError, refusal
from ...engines import DTYPES
from ...transforms.adjoint import Copy, Fresh, Program, Reserve, Run, evaluated
from .._buffers import Buffer, adjoint_of, unread, zeros
from .._case import Case
from .._steps import Situation, Step
from ._emitted import Emitted
from ._reverse import Launches

LARGEST_TAPE = 2**31 - 1
"""Numbers on a tape: engines count elements in 32 bits."""


class Runner:
    """Runs a program for one situation."""

    def __init__(
        self,
        case: Case,
        emitted: Callable[[Run], Emitted],
        program: Program,
        situation: Situation,
        active: frozenset[str],
    ) -> None:
        self._case = case
        self._program = program
        self._situation = situation
        self._signature = case.signature
        self._device = situation.device
        self._samples = situation.batch if case.is_looped else None
        self._shapes = self._sizes(case)
        self._active = active
        self._emitted = emitted
        self._places = self._all_places()
        self._steps: dict[int, Step] = {}

    def resize(self, situation: Situation) -> Runner:
        """The same program for other sizes."""
        return Runner(self._case, self._emitted, self._program, situation, self._active)

    def _all_places(self) -> dict[str, int]:
        """The place of every memory's pointer. All are known before the first run: several threads may come first."""
        runs: list[Run] = []
        for action in self._program.actions:
            if isinstance(action, Run):
                runs.append(action)
            elif isinstance(action, Reserve):
                runs += [one for one in (action.iterations, action.count) if isinstance(one, Run)]
        names = (run.memory.get(name, name) for run in runs for name in self._emitted(run).touched)
        return {name: place for place, name in enumerate(dict.fromkeys(names))}

    def _sizes(self, case: Case) -> dict[str, tuple[int, ...]]:
        """Sizes of all arrays that one pass works on."""
        situation = self._situation
        if case.is_looped:
            shapes = {name: situation.core(name) for name in situation.buffers}
        else:
            shapes = {name: buffer.shape for name, buffer in situation.buffers.items()}
        lead = () if situation.batch is None or case.is_looped else (situation.batch,)
        shapes |= {name: lead + shape for name, shape in situation.private.items()}
        cells = (one for name, one in self._program.arrays.items() if name not in shapes and not one.label)
        for cell in cells:
            assert cell.rank == 0, cell
            shapes[cell.name] = ()
        return shapes

    @property
    def _op(self) -> str:
        return self._signature.op

    def run(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        scalars: Mapping[str, Any],
        launch: Launches,
    ) -> list[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not active."""
        memory = self._memory(saved, cotangents)
        self.forward(memory, scalars, launch)
        gradients = self._program.gradients
        return [
            None if name not in self._active else memory[gradients[name]] if name in gradients else self._zeros(name)
            for name in self._signature.arrays
        ]

    def forward(self, memory: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], launch: Launches) -> None:
        """Run a program that has no adjoints, on memory that it was given."""
        if self._samples is None:
            _Pass(self, memory, scalars, launch).run()
        for sample in range(self._samples or 0):
            _Pass(self, self._views(memory, sample), scalars, launch).run()

    def _views(self, memory: Mapping[str, torch.Tensor], sample: int) -> dict[str, torch.Tensor]:
        """One sample's part of memory."""
        owners = {gradient: name for name, gradient in self._program.gradients.items()}
        batched = self._situation.batched
        return {name: one[sample] if owners.get(name, name) in batched else one for name, one in memory.items()}

    def _memory(
        self, saved: Mapping[str, torch.Tensor], cotangents: Sequence[torch.Tensor | None]
    ) -> dict[str, torch.Tensor]:
        """What all samples share: values that are read, cotangents, and adjoints of the op's arrays at zero."""
        program, buffers = self._program, self._situation.buffers
        memory = {name: saved[name] for name in program.reads if name in saved}
        given = dict(zip(self._signature.outputs, cotangents, strict=True))
        for name, gradient in program.gradients.items():
            if name in given:
                is_spoiled = name in program.spoils
                memory[gradient] = adjoint_of(given[name], buffers[name], self._device, is_spoiled)
            elif name in buffers:
                memory[gradient] = self._zeros(name)
        return memory

    def _zeros(self, name: str) -> torch.Tensor:
        """Memory like an array of the op's."""
        return zeros(self._situation.buffers[name], self._device)

    def own_adjoints(self) -> dict[str, torch.Tensor]:
        """Adjoints, at zero, of what only one pass knows: locals of the top level, and memory of generated kernels."""
        buffers = self._situation.buffers
        gradients = self._program.gradients
        return {gradient: self.like(name) for name, gradient in gradients.items() if name not in buffers}

    def like(self, name: str) -> torch.Tensor:
        """Memory at zero with an array's shape, for one pass."""
        kind = DTYPES[self._program.arrays[name].type]
        return zeros(Buffer(name, self._shapes[name], kind), self._device)

    def step(self, run: Run, memory: Mapping[str, torch.Tensor], *, is_fixed: bool) -> Step:
        """A launch; the same for every call where its memory has the same sizes."""
        if id(run) in self._steps:
            return self._steps[id(run)]
        emitted = self._emitted(run)
        names = {name: run.memory.get(name, name) for name in emitted.touched}
        places = {name: self._places[one] for name, one in names.items()}
        shapes = {name: memory[one].shape for name, one in names.items()}
        some = next(iter(places.values()))
        for name in emitted.arrays:
            if name not in names:  # asked for its sizes alone: what lies there is not looked at
                places[name], shapes[name] = some, torch.Size(self._shapes[name])
        step = emitted.step(places, shapes, self.renamed(run.source))
        if is_fixed:
            self._steps[id(run)] = step
        return step

    def renamed(self, source: int) -> Mapping[str, str]:
        """The op's names for a launch's scalar arguments, by those of its kernel."""
        return self._signature.stages[source].renamed

    def iterations(self, reserve: Reserve, scalars: Mapping[str, Any]) -> int | None:
        """Parallel iterations of a task, where they are known before the launch."""
        return None if isinstance(reserve.iterations, Run) else evaluated(reserve.iterations, self._shapes, scalars)

    def depth(self, reserve: Reserve, scalars: Mapping[str, Any]) -> dict[str, int]:
        """Entries that each iteration needs, by the name of the argument that tells the kernel."""
        known = (size.depth for size in reserve.tapes if size.depth is not None)
        return {name: evaluated(formula, self._shapes, scalars) for name, formula in known}

    def tape(self, name: str, kind: str, count: int) -> torch.Tensor:
        """Memory of a tape."""
        check_tape(self._op, count)
        return unread(Buffer(name, (count,), DTYPES[kind]), self._device)


class _Pass:
    """One run of a program."""

    def __init__(
        self, runner: Runner, memory: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], launch: Launches
    ) -> None:
        self.runner = runner
        self.memory = {**memory, **runner.own_adjoints()}
        self.scalars = dict(scalars)
        self.launch = launch
        self.waiting: list[Step] = []
        self.taped: set[str] = set()
        self.pointers: list[int] = []

    def run(self) -> None:
        """Do everything; launches that nothing comes between go out together."""
        for action in self.runner._program.actions:
            match action:
                case Fresh(name, like):
                    if name in self.memory:  # of a launch before, which may wait
                        self.flush()
                    self.put(name, self.runner.like(like))
                case Copy(name, of):
                    self.flush()
                    self.put(name, self.memory[of].clone())
                case Run():
                    is_fixed = self.taped.isdisjoint(action.kernel.arrays)
                    self.waiting.append(self.runner.step(action, self.memory, is_fixed=is_fixed))
                case Reserve():
                    self.reserve(action)
        self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        places = self.runner._places
        for name in itertools.islice(places, len(self.pointers), None):
            tensor = self.memory.get(name)
            self.pointers.append(0 if tensor is None else tensor.data_ptr())
        self.launch(self.waiting, [*self.pointers, 0], self.scalars)
        self.waiting = []

    def put(self, name: str, tensor: torch.Tensor) -> None:
        """Give memory a name, which another may have had."""
        self.memory[name] = tensor
        place = self.runner._places.get(name)
        if place is not None and place < len(self.pointers):
            self.pointers[place] = tensor.data_ptr()

    def now(self, run: Run) -> None:
        """Launch, and wait until it is asked for."""
        self.waiting.append(self.runner.step(run, self.memory, is_fixed=False))
        self.flush()

    def reserve(self, reserve: Reserve) -> None:
        """Make room for a task's tapes."""
        if any(name in self.memory for size in reserve.tapes for name, _, _ in size.arrays):
            self.flush()  # launches before work on tapes of these names
        own = {name: self.scalars[called] for name, called in self.runner.renamed(reserve.source).items()}
        scalars = {**self.scalars, **own}
        iterations = self.runner.iterations(reserve, scalars)
        if isinstance(reserve.iterations, Run):
            self.put(reserve.total, self.runner.tape(reserve.total, "i32", 1).zero_().reshape(()))
            self.now(reserve.iterations)
            iterations = int(self.memory[reserve.total])
        assert iterations is not None
        depth = self.runner.depth(reserve, scalars)
        self.scalars |= depth
        entries = {size: iterations * depth[size.depth[0]] for size in reserve.tapes if size.depth}
        entries |= self.counted(reserve, iterations)
        for size in reserve.tapes:
            for name, kind, width in size.arrays:
                self.put(name, self.runner.tape(name, kind, entries[size] * width))
                self.taped.add(name)

    def counted(self, reserve: Reserve, iterations: int) -> dict[Any, int]:
        """Entries of tapes for which a kernel has to count."""
        sizes = [size for size in reserve.tapes if size.starts is not None]
        if reserve.count is None:
            return {}
        for size in sizes:
            assert size.starts is not None
            self.put(size.starts[1], self.runner.tape(size.starts[1], "i32", iterations).zero_())
        self.now(reserve.count)
        found = {}
        for size in sizes:
            assert size.starts is not None
            counts = self.memory[size.starts[1]]
            ends = counts.cumsum(0)
            self.put(size.starts[0], (ends - counts).int())
            self.taped.add(size.starts[0])
            found[size] = int(ends[-1]) if iterations else 0
        return found


def check_tape(op: str, count: int) -> None:
    """Refuse a tape of so many numbers."""
    if count > LARGEST_TAPE:
        words = f"the backward pass of op `{op}` needs a tape of {count} numbers, more than engines can count"
        remedy = "Split the call: fewer parallel iterations, or shorter loops in each, in one call."
        raise GradientError(refusal(words, [("largest", str(LARGEST_TAPE))], remedy))
