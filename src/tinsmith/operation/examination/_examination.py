"""The abstract class `Examination`: one call of an op or a layer for checks, with its kernels as IR and observed runs.

It provides what a check needs to know of a call. The subclass for ops is in `_op_examination`, the one for layers on
fields in `layers`. A layer that runs on tensors contains an op, whose call is examined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from ...frontend.lowering import LoweredKernel
from ...linter import Finding
from ._oracle import Cotangents, Observer, check_shapes, name_cotangents

Tensors = Mapping[str, torch.Tensor]
Origin = Literal["source", "engine", "backward", "race"]
"""Where a gradient comes from: "race" if it is refused because iterations of a parallel loop race."""


def describe_non_finite(name: str, tensor: torch.Tensor) -> str:
    """Return how many elements of a tensor are infinite or NaN, and which is the first; "" if all are finite."""
    odd = ~tensor.detach().isfinite()
    if not odd.any():
        return ""
    index = tuple(odd.nonzero()[0].tolist())
    value = tensor[index].item()
    if not index:
        return f"`{name}` is {value}"
    element = f"{name}[{', '.join(map(str, index))}]"
    return f"`{name}` is not finite in {int(odd.sum()):,} of {odd.numel():,} elements: `{element}` is {value}"


class Examination(ABC):
    """One call of an op or of a layer.

    Members that need the kernels as IR (`kernels`, `run`, `leaves`, `allocated_dtypes`) raise NotCovered if there is
    none.
    """

    kind: Literal["op", "layer"]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the op, or of the layer."""

    @property
    def title(self) -> str:
        """The op or layer in messages: "op `blur`"."""
        return f"{self.kind} `{self.name}`"

    @property
    @abstractmethod
    def module_name(self) -> str:
        """The name of the engine's module in the file of the kernels: `ti`, `qd`."""

    @property
    @abstractmethod
    def inputs(self) -> dict[str, torch.Tensor]:
        """The tensors of the call by name, without hidden ones."""

    @property
    def differentiable(self) -> dict[str, torch.Tensor]:
        """The inputs that may have a gradient."""
        return {name: one for name, one in self.inputs.items() if one.is_floating_point()}

    @property
    def scalars(self) -> Mapping[str, Any]:
        """The arguments that are numbers or vectors, by name."""
        return {}

    @property
    def non_finite_inputs(self) -> dict[str, str]:
        """The inputs and scalars that hold infinities or NaN, by name, with a description for messages.

        Checks ask here: at such numbers, differences are NaN, and a derivative that is not finite says nothing about
        the kernel.
        """
        floats = {**self.differentiable, **{name: torch.as_tensor(one) for name, one in self.scalars.items()}}
        described = {name: describe_non_finite(name, one) for name, one in floats.items()}
        return {name: words for name, words in described.items() if words}

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
        """The names of the results, in order."""

    @property
    @abstractmethod
    def starts(self) -> list[tuple[str, int]]:
        """The file and line of each kernel."""

    @property
    def reason_unreadable(self) -> str:
        """Why the kernels are not available as IR, if that is known without lowering them; "" otherwise."""
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
        """The dtypes of outputs and scratch, by name."""

    @property
    @abstractmethod
    def uninitialized_arrays(self) -> frozenset[str]:
        """The outputs and scratch that start uninitialized."""

    @property
    @abstractmethod
    def draws(self) -> bool:
        """Whether random numbers are derived from a seed that the call drew from torch's generator."""

    @property
    @abstractmethod
    def gradient(self) -> str:
        """Where the gradient comes from: "auto", "source", "engine", "backward"."""

    @abstractmethod
    def origin(self, active: frozenset[str]) -> Origin:
        """Return where the gradient by the `active` inputs comes from. Unlike `gradient`, never return "auto"."""

    @property
    @abstractmethod
    def engine_remedy(self) -> str:
        """The remedy if the engine's gradient is used and wrong."""

    @abstractmethod
    def find_hand_written_store(self, name: str) -> tuple[str, int] | None:
        """Return the file and line where a hand-written kernel stores an input's gradient; None if there is none."""

    @property
    @abstractmethod
    def forkable_engine(self) -> str | None:
        """The engine, if a forked process could repeat the call; None if the call uses memory of this process."""

    @property
    def promises(self) -> Mapping[str, tuple[str, int]]:
        """The promises of the spec about inputs, by name: the word, and the number of batch dims of the tensor."""
        return {}

    @property
    def notes(self) -> Sequence[str]:
        """Further notes for a report."""
        return ()

    def preserve_memory(self) -> AbstractContextManager[None]:
        """Enter a context in which `compute` may change memory that the call does not own; restore it afterwards."""
        return nullcontext()

    @abstractmethod
    def compute(self, values: Tensors) -> dict[str, torch.Tensor]:
        """Run the compiled call and return its outputs by name, differentiable.

        `values` replace inputs of the same names.
        """

    @abstractmethod
    def leaves(self) -> dict[str, torch.Tensor]:
        """Return the floating inputs and scalar arguments in float64, as new leaves of torch's autograd."""

    @abstractmethod
    def run(
        self,
        leaves: Tensors,
        *,
        faithful: bool = False,
        seeded: bool = False,
        observer: Observer | None = None,
    ) -> dict[str, torch.Tensor]:
        """Interpret the kernels and return the outputs by name, as differentiable functions of `leaves`.

        `leaves` replace arguments of the same names. With `faithful`, floats are rounded as in the compiled kernel.
        """

    def cotangents(self, given: Cotangents, outputs: Tensors) -> dict[str, torch.Tensor]:
        """Return cotangents by the output's name. Raise ArgumentError or ShapeError if they do not fit the outputs."""
        cotangents = name_cotangents(self.title, self.outputs, given)
        check_shapes(self.title, cotangents, dict(outputs))
        return cotangents

    @abstractmethod
    def with_adjoint(self, adjoint: str | None) -> Examination:
        """Return the same call with its gradient from `adjoint` ("engine", "source"); the call itself for None.

        The engine's gradient is used even if it is known to be wrong, so that checks can show it.
        """

    @abstractmethod
    def to_double(self) -> Examination | None:
        """Return the same call with its floats in float64; None if its kernels do not accept them."""

    @abstractmethod
    def with_bounds_checked(self) -> Examination:
        """Return the same call with bounds checks, which raise BoundsError. Raise KernelError if that is impossible."""


class Examinable(ABC):
    """Base class of layers that can be called and checked like an op."""

    @abstractmethod
    def _examine(self, inputs: tuple[Any, ...], who: str) -> Examination:
        """Examine a call. `who` is the caller in messages. Raises the errors of a call."""

    @abstractmethod
    def _lint(self) -> list[Finding]:
        """Return lint findings of its kernels."""
