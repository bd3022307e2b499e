"""Examination: one call of an op or a layer, as checks need it: its kernels as IR, and runs that are observed.

What a check needs to know of a call. An op's call stands in `_op_examination`, that of a layer on fields in `layers`. A
layer that runs on tensors is an op inside, and its call is that op's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from ..linter import Finding
from ..source.ir import LoweredKernel
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
        """What was called, for messages: "op `blur`"."""
        return f"{self.kind} `{self.name}`"

    @property
    @abstractmethod
    def module_name(self) -> str:
        """What the file of its kernels calls the module of their engine: `ti`, `qd`."""

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
        """The type of a float that the kernels do not say the type of: "f32", "f64"."""

    @property
    @abstractmethod
    def allocated_dtypes(self) -> dict[str, torch.dtype]:
        """Dtypes of outputs and scratch, by name."""

    @property
    @abstractmethod
    def uninitialised_arrays(self) -> frozenset[str]:
        """Outputs and scratch whose memory starts as anything."""

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
        """What to do where the engine's gradient is taken, and wrong."""

    @abstractmethod
    def find_hand_written_store(self, name: str) -> tuple[str, int] | None:
        """File and line of what stores an input's gradient, where a kernel written by hand does."""

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
        """What a report says about the call besides."""
        return ()

    def preserve_memory(self) -> AbstractContextManager[None]:
        """Inside, `compute` may change memory that is not the call's own; afterwards that is as it was."""
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

        The engine's is taken also where it is known to go wrong: that is what is to be seen.
        """

    @abstractmethod
    def to_double(self) -> Examination | None:
        """The same call with its floats in float64; None where it does not take them."""

    @abstractmethod
    def with_bounds_checked(self) -> Examination:
        """The same call, which raises BoundsError for an index outside. Raises KernelError where that cannot be."""


class Examinable(ABC):
    """What can be called like an op and be looked into: layers derive from it."""

    @abstractmethod
    def _examine(self, inputs: tuple[Any, ...], who: str) -> Examination:
        """Lay open a call. `who` asks, for messages. Raises whatever a call raises."""

    @abstractmethod
    def _lint(self) -> list[Finding]:
        """Findings of its kernels."""
