"""Examination: one call of an op or a layer for checks: its kernels as IR, and observed runs.

It has what a check needs of a call. An op's call is in `_op_examination`, that of a layer on fields in `layers`. A
layer that runs on tensors contains an op, whose call is examined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from ...frontend.lowering import LoweredKernel
from ...linter import Finding
from ._oracle import Cotangents, Observer, by_output, check_shapes

Tensors = Mapping[str, torch.Tensor]
Origin = Literal["source", "engine", "backward", "race"]
"""Where a gradient comes from: "race" where it is refused, since iterations of a parallel loop race."""


class Examination(ABC):
    """One call of an op or of a layer.

    What needs the kernels as IR (`kernels`, `run`, `leaves`, `allocated_dtypes`) raises NotCovered where there is none.
    """

    kind: Literal["op", "layer"]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the op, or of the layer."""

    @property
    def title(self) -> str:
        """Name of the op or layer in messages: "op `blur`"."""
        return f"{self.kind} `{self.name}`"

    @property
    @abstractmethod
    def module_name(self) -> str:
        """The engine's module in the file of the kernels: `ti`, `qd`."""

    @property
    @abstractmethod
    def inputs(self) -> dict[str, torch.Tensor]:
        """Tensors of the call by name, without what is hidden from the caller."""

    @property
    def differentiable(self) -> dict[str, torch.Tensor]:
        """The inputs that may have a gradient."""
        return {name: one for name, one in self.inputs.items() if one.is_floating_point()}

    @property
    def batchable(self) -> frozenset[str]:
        """Inputs that may have batch dims, which the kernels do not see."""
        return frozenset()

    @property
    def is_batch(self) -> bool:
        """Whether the inputs have batch dims in this call."""
        return False

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """Names of the results, in their order."""

    @property
    @abstractmethod
    def starts(self) -> list[tuple[str, int]]:
        """File and line of each kernel."""

    @property
    def reason_unreadable(self) -> str:
        """Why the kernels are not available as IR, where that is known before they are asked for; "" otherwise."""
        return ""

    @property
    @abstractmethod
    def kernels(self) -> list[LoweredKernel]:
        """The kernels as IR, in order, without batch dims; random numbers are statements."""

    @property
    @abstractmethod
    def default_float(self) -> str:
        """The default float type of the kernels: "f32", "f64"."""

    @property
    @abstractmethod
    def allocated_dtypes(self) -> dict[str, torch.dtype]:
        """Dtypes of outputs and scratch, by name."""

    @property
    @abstractmethod
    def uninitialised_arrays(self) -> frozenset[str]:
        """Outputs and scratch that start uninitialised."""

    @property
    @abstractmethod
    def draws(self) -> bool:
        """Whether random numbers follow from a seed that the call drew from torch's generator."""

    @property
    @abstractmethod
    def gradient(self) -> str:
        """Where the gradient comes from: "auto", "source", "engine", "backward"."""

    @abstractmethod
    def origin(self, active: frozenset[str]) -> Origin:
        """The same for the gradient by these inputs, with "auto" decided, and with "race" where it is refused."""

    @property
    @abstractmethod
    def engine_remedy(self) -> str:
        """The remedy if the engine's gradient is used and wrong."""

    @abstractmethod
    def find_hand_written_store(self, name: str) -> tuple[str, int] | None:
        """File and line of the store of an input's gradient in a hand-written kernel."""

    @property
    @abstractmethod
    def forkable_engine(self) -> str | None:
        """The engine, where a forked process could repeat the call; None where the call's memory is in this process."""

    @property
    def promises(self) -> Mapping[str, tuple[str, int]]:
        """What the spec promises of inputs, by name: the word, and how many batch dims the tensor has."""
        return {}

    @property
    def notes(self) -> Sequence[str]:
        """Further notes for a report."""
        return ()

    def preserve_memory(self) -> AbstractContextManager[None]:
        """Within, `compute` may change memory that the call does not own; afterwards it is restored."""
        return nullcontext()

    @abstractmethod
    def compute(self, values: Tensors) -> dict[str, torch.Tensor]:
        """Outputs of the call by name, compiled and differentiable. `values` replace inputs of their name."""

    @abstractmethod
    def leaves(self) -> dict[str, torch.Tensor]:
        """Floating inputs and scalar arguments in float64, as new leaves of torch's autograd."""

    @abstractmethod
    def run(
        self,
        leaves: Tensors,
        *,
        faithful: bool = False,
        seeded: bool = False,
        observer: Observer | None = None,
    ) -> dict[str, torch.Tensor]:
        """Outputs, by interpreting; connected with `leaves`, which stand for arguments of their name.

        `faithful` rounds as the compiled kernel does.
        """

    def cotangents(self, given: Cotangents, outputs: Tensors) -> dict[str, torch.Tensor]:
        """Cotangents by the output's name. Raises ArgumentError or ShapeError for what does not fit."""
        cotangents = by_output(self.title, self.outputs, given)
        check_shapes(self.title, cotangents, dict(outputs))
        return cotangents

    @abstractmethod
    def with_adjoint(self, adjoint: str | None) -> Examination:
        """The same call with its gradient from `adjoint` ("engine", "source"); the call itself for None.

        The engine's is used even if it is known to be wrong, so that checks can show it.
        """

    @abstractmethod
    def to_double(self) -> Examination | None:
        """The same call with its floats in float64; None where it does not take them."""

    @abstractmethod
    def with_bounds_checked(self) -> Examination:
        """The same call, which raises BoundsError for an index outside. Raises KernelError where that cannot be."""


class Examinable(ABC):
    """Base class of layers: something that can be called and checked like an op."""

    @abstractmethod
    def _examine(self, inputs: tuple[Any, ...], who: str) -> Examination:
        """Examine a call. `who` is the caller in messages. Raises the errors of a call."""

    @abstractmethod
    def _lint(self) -> list[Finding]:
        """Lint findings of its kernels."""
