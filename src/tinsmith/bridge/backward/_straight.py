"""Straight: a generated backward pass whose memory follows from sizes: allocate, take pointers, launch."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch

from ...engines import DTYPES, one_at_a_time
from ...source.ir import nodes, walk
from ...transforms.adjoint import Action, Fresh, Program, Reserve, Run, evaluated
from .._buffers import Buffer, Makers, adjoint_of
from .._case import Case
from .._steps import Situation, Step, resize
from ._emitted import Emitted
from ._reverse import Launches
from ._runner import check_tape


def is_straight(case: Case, program: Program, situation: Situation) -> bool:
    """Whether a program needs nothing that depends on a call."""
    plain = all(isinstance(action, Fresh | Run) or _is_fixed(action) for action in program.actions)
    names = [action.name for action in program.actions if isinstance(action, Fresh)]
    return plain and not case.is_looped and not situation.private and len(set(names)) == len(names)


def _is_fixed(action: Action) -> bool:
    """Whether tapes have the same size at every call."""
    if not isinstance(action, Reserve) or action.count is not None or isinstance(action.iterations, Run):
        return False
    formulas = [action.iterations, *(size.depth[1] for size in action.tapes if size.depth)]
    return not any(isinstance(one, nodes.Argument) for formula in formulas for one in walk.parts(formula))


class _Layout:
    """Where everything lies in such a program, whatever the sizes are.

    Memory: values that are read, adjoints of outputs, zeros, then tapes.

    Attributes:
        reads: arrays whose values are read.
        outputs: (number, name, whether the program writes to its adjoint) of outputs that have one.
        zeros: for memory that starts at zero, the array whose sizes it has.
        reserves: of the tapes.
        places: of all memory by name.
        sizes_of: the array whose sizes other memory has, by name.
        results: for each input the place of its gradient, None where none is wanted.
        cells: arrays of one element, which belong to the program alone.
    """

    def __init__(
        self,
        case: Case,
        emitted: Callable[[Run], Emitted],
        program: Program,
        known: Container[str],
        active: frozenset[str],
    ) -> None:
        signature = case.signature
        self.op = signature.op
        self.stages = signature.stages
        self.emitted = emitted
        self.program = program
        gradients = dict(program.gradients)
        self.reads = tuple(sorted(program.reads))
        numbered = enumerate(signature.outputs)
        self.outputs = tuple((number, name, name in program.spoils) for number, name in numbered if name in gradients)
        made = {gradient: name for name, gradient in gradients.items() if name not in signature.outputs}
        fresh = {action.name: action.like for action in program.actions if isinstance(action, Fresh)}
        missing = {name: f"nothing for {name}" for name in signature.arrays if name in active and name not in gradients}
        made |= fresh | {nothing: name for name, nothing in missing.items()}
        self.zeros = tuple(made.values())
        self.cells = tuple(name for name in self.zeros if name not in known)
        self.reserves = tuple(action for action in program.actions if isinstance(action, Reserve))
        tapes = [tape for reserve in self.reserves for size in reserve.tapes for tape, _, _ in size.arrays]
        names = [*self.reads, *(gradients[name] for _, name, _ in self.outputs), *made, *dict.fromkeys(tapes)]
        self.places = {name: place for place, name in enumerate(names)}
        self.sizes_of = {gradient: name for name, gradient in gradients.items()} | fresh
        gradients |= missing
        self.results = tuple(self.places[gradients[name]] if name in active else None for name in signature.arrays)
        self.steps: tuple[Step, ...] = ()

    def steps_for(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Step, ...]:
        """The launches on memory of these sizes; kernels are compiled for the first ones."""
        if not self.steps:
            self.steps = tuple(self._step(run, shapes) for run in self.program.actions if isinstance(run, Run))
            return self.steps
        return resize(self.steps, shapes) or self.steps

    def _step(self, run: Run, shapes: Mapping[str, tuple[int, ...]]) -> Step:
        emitted = self.emitted(run)
        names = {name: run.memory.get(name, name) for name in emitted.touched}
        places = {name: self.places[one] for name, one in names.items()}
        some = next(iter(places.values()))
        like = {name: self.sizes_of.get(names.get(name, name), name) for name in emitted.arrays}
        found = emitted.step(
            {name: places.get(name, some) for name in emitted.arrays},
            {name: shapes[one] for name, one in like.items()},
            self.stages[run.source].renamed,
        )
        return found._replace(sized=tuple([one._replace(array=like[one.array]) for one in found.sized]))


class Straight:
    """Runs such a program for one set of sizes."""

    def __init__(self, layout: _Layout, situation: Situation) -> None:
        buffers, device = situation.buffers, situation.device
        self._layout = layout
        self._device = device
        self._steps: tuple[Step, ...] = ()
        self._outputs = [(number, buffers[name], is_spoiled) for number, name, is_spoiled in layout.outputs]
        self._shapes = {**situation.shapes, **dict.fromkeys(layout.cells, ())} if layout.cells else situation.shapes
        self._depths: dict[str, int] = {}
        tapes = self._tapes() if layout.reserves else []
        self.tape_bytes = sum([buffer.shape[0] * buffer.dtype.itemsize for buffer in tapes])
        kinds = layout.program.arrays
        zeros = [buffers.get(name) or Buffer(name, (), DTYPES[kinds[name].type]) for name in layout.zeros]
        self._makers = Makers([*[(one, True) for one in zeros], *[(one, False) for one in tapes]], device)

    @classmethod
    def of(
        cls,
        case: Case,
        emitted: Callable[[Run], Emitted],
        program: Program,
        situation: Situation,
        active: frozenset[str],
    ) -> Straight:
        """The backward pass of a first set of sizes."""
        return cls(_Layout(case, emitted, program, situation.buffers, active), situation)

    def resize(self, situation: Situation) -> Straight:
        """The same program for other sizes."""
        return Straight(self._layout, situation)

    def _tapes(self) -> list[Buffer]:
        """Memory of tapes; their depth is told to the kernels by arguments."""
        found: dict[str, Buffer] = {}
        self._shapes = dict(self._shapes)
        for reserve in self._layout.reserves:
            assert not isinstance(reserve.iterations, Run)
            iterations = evaluated(reserve.iterations, self._shapes, {})
            for size in reserve.tapes:
                assert size.depth is not None
                name, formula = size.depth
                self._depths[name] = evaluated(formula, self._shapes, {})
                for tape, kind, width in size.arrays:
                    count = iterations * self._depths[name] * width
                    check_tape(self._layout.op, count)
                    found[tape] = Buffer(tape, (count,), DTYPES[kind])
                    self._shapes[tape] = (count,)
        return list(found.values())

    def run(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        scalars: Mapping[str, Any],
        launch: Launches,
    ) -> list[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not active."""
        steps = self._steps or self._make_steps()
        memory = [saved[name] for name in self._layout.reads]
        for number, buffer, is_spoiled in self._outputs:
            memory.append(adjoint_of(cotangents[number], buffer, self._device, is_spoiled))
        memory += [make() for make in self._makers.now or self._makers.find()]
        pointers = [tensor.data_ptr() for tensor in memory]
        pointers.append(0)
        launch(steps, pointers, {**scalars, **self._depths} if self._depths else scalars)
        return [None if place is None else memory[place] for place in self._layout.results]

    @one_at_a_time
    def _make_steps(self) -> tuple[Step, ...]:
        self._steps = self._steps or self._layout.steps_for(self._shapes)
        return self._steps
