"""Pullback: a backward pass, as a program on what a call saved and on its cotangents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .._buffers import adjoint_of, private
from .._executor import Executor, Launches, Layout
from .._steps import Situation


class Ends(NamedTuple):
    """How a backward pass begins and ends. Its program is given the values that it reads, then adjoints of outputs.

    Attributes:
        reads: arrays whose values it reads, and whether it gets a copy, since it writes there.
        outputs: (number, name, whether the program writes to its adjoint) of outputs that have one.
        results: for each input the place of its gradient, and whether that is one for each sample; None where none is
            wanted.
    """

    reads: tuple[tuple[str, bool], ...]
    outputs: tuple[tuple[int, str, bool], ...]
    results: tuple[tuple[int, bool] | None, ...]


class Pullback:
    """A backward pass for one set of sizes, and for one set of inputs that want a gradient."""

    def __init__(self, executor: Executor, ends: Ends) -> None:
        situation = executor.situation
        self.executor = executor
        self._ends = ends
        self._device = situation.device
        shapes, dtypes = situation.shapes, situation.dtypes
        self._outputs = [(number, shapes[name], dtypes[name], is_spoiled) for number, name, is_spoiled in ends.outputs]

    @classmethod
    def of(cls, layout: Layout, ends: Ends, situation: Situation) -> Pullback:
        """The backward pass of a first set of sizes."""
        return cls(Executor(layout, situation), ends)

    def resize(self, situation: Situation) -> Pullback:
        """The same backward pass for other sizes."""
        return Pullback(self.executor.resize(situation), self._ends)

    def run(
        self,
        saved: Mapping[str, torch.Tensor],
        cotangents: Sequence[torch.Tensor | None],
        scalars: Mapping[str, Any],
        launch: Launches,
    ) -> list[torch.Tensor | None]:
        """Gradients of the inputs, in their order; None where none is wanted."""
        given = [private(saved[name]) if is_written else saved[name] for name, is_written in self._ends.reads]
        for number, shape, dtype, is_spoiled in self._outputs:
            cotangent = cotangents[number]
            if cotangent is None:
                given.append(torch.zeros(shape, dtype=dtype, device=self._device))
            else:
                given.append(adjoint_of(cotangent, is_spoiled))
        memory = self.executor.run(given, scalars, launch)
        found: list[torch.Tensor | None] = []
        for result in self._ends.results:
            gradient = None if result is None else memory[result[0]]
            found.append(gradient.sum(0) if gradient is not None and result is not None and result[1] else gradient)
        return found
