"""Straight: a generated backward pass whose memory follows from sizes: allocate, take pointers, launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...engines import DTYPES, one_at_a_time
from ...source.ir import nodes, walk
from ...transforms.adjoint import Action, Fresh, Program, Reserve, Run, evaluated
from .._buffers import Buffer, adjoint_of, unread_maker, zeros_maker
from .._case import Case
from .._steps import Situation, Step
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


class Straight:
    """Runs such a program in one situation. Memory: values that are read, adjoints of outputs, zeros, then tapes."""

    def __init__(
        self,
        case: Case,
        emitted: Callable[[Run], Emitted],
        program: Program,
        situation: Situation,
        active: frozenset[str],
    ) -> None:
        signature, device = case.signature, situation.device
        self._op = signature.op
        self._stages = signature.stages
        self._program = program
        self._emitted = emitted
        self._device = device
        self._steps: tuple[Step, ...] = ()
        self._reads = tuple(sorted(program.reads))
        self._shapes = {name: buffer.shape for name, buffer in situation.buffers.items()}
        names = list(self._reads)
        self._outputs: list[tuple[int, Buffer, bool]] = []
        for number, name in enumerate(signature.outputs):
            if name in program.gradients:
                self._outputs.append((number, situation.buffers[name], name in program.spoils))
                names.append(program.gradients[name])
        made = {gradient: name for name, gradient in program.gradients.items() if name not in signature.outputs}
        made |= {action.name: action.like for action in program.actions if isinstance(action, Fresh)}
        missing = [name for name in signature.arrays if name in active and name not in program.gradients]
        made |= {f"nothing for {name}": name for name in missing}
        self._zeros = [zeros_maker(self._buffer(like, situation), device) for like in made.values()]
        tapes = self._tapes(program)
        self._zeros += [unread_maker(buffer, device) for buffer in tapes]
        self.tape_bytes = sum(buffer.shape[0] * buffer.dtype.itemsize for buffer in tapes)
        self._places = {name: place for place, name in enumerate([*names, *made, *(one.name for one in tapes)])}
        gradients = {**program.gradients, **{name: f"nothing for {name}" for name in missing}}
        self._results = [self._places[gradients[name]] if name in active else None for name in signature.arrays]

    def _tapes(self, program: Program) -> list[Buffer]:
        """Memory of tapes; their depth is told to the kernels by arguments."""
        found: dict[str, Buffer] = {}
        self._depths: dict[str, int] = {}
        for action in program.actions:
            if not isinstance(action, Reserve) or isinstance(action.iterations, Run):
                continue
            iterations = evaluated(action.iterations, self._shapes, {})
            for size in action.tapes:
                assert size.depth is not None
                name, formula = size.depth
                self._depths[name] = evaluated(formula, self._shapes, {})
                for tape, kind, width in size.arrays:
                    count = iterations * self._depths[name] * width
                    check_tape(self._op, count)
                    found[tape] = Buffer(tape, (count,), DTYPES[kind])
                    self._shapes[tape] = (count,)
        return list(found.values())

    def _buffer(self, name: str, situation: Situation) -> Buffer:
        """An array of the op, or the one element of a local of the top level."""
        known = situation.buffers.get(name)
        if known is not None:
            return known
        self._shapes[name] = ()
        return Buffer(name, (), DTYPES[self._program.arrays[name].type])

    def run(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        scalars: Mapping[str, Any],
        launch: Launches,
    ) -> list[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None for those that are not active."""
        steps = self._steps or self._make_steps()
        memory = [saved[name] for name in self._reads]
        for number, buffer, is_spoiled in self._outputs:
            memory.append(adjoint_of(cotangents[number], buffer, self._device, is_spoiled))
        memory += [make() for make in self._zeros]
        pointers = [tensor.data_ptr() for tensor in memory]
        pointers.append(0)
        launch(steps, pointers, {**scalars, **self._depths} if self._depths else scalars)
        return [None if place is None else memory[place] for place in self._results]

    @one_at_a_time
    def _make_steps(self) -> tuple[Step, ...]:
        likes = {gradient: name for name, gradient in self._program.gradients.items()}
        likes |= {action.name: action.like for action in self._program.actions if isinstance(action, Fresh)}
        runs = (action for action in self._program.actions if isinstance(action, Run))
        self._steps = tuple(self._step(run, likes) for run in runs)
        return self._steps

    def _step(self, run: Run, likes: Mapping[str, str]) -> Step:
        emitted = self._emitted(run)
        names = {name: run.memory.get(name, name) for name in emitted.touched}
        places = {name: self._places[one] for name, one in names.items()}
        some = next(iter(places.values()))
        shapes = {name: self._shapes[likes.get(names.get(name, name), name)] for name in emitted.arrays}
        renamed = self._stages[run.source].renamed
        return emitted.step({name: places.get(name, some) for name in emitted.arrays}, shapes, renamed)
