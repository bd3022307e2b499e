"""The interface of sources of gradients, the replaceable part of an op.

A `Reverse` says, for calls of one kind, which values it reads, and makes the backward pass. Some launch one kernel for
each of the op's kernels (`KernelReverse`: the engine's own reverse mode, or one written by hand). The generated one is
a program of several kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...tracing import constant_when_traced
from .._key import CallKey
from .._routine import Make, Routine


class Wish(NamedTuple):
    """A description of the backward pass that is wanted.

    Attributes:
        active: the inputs that want a gradient.
        given: the outputs that have a cotangent, None for all.
        stacks: the depths of gradient stacks (`ReverseAt.find_stack_depths`).
        adds: whether the pass adds to gradients that already hold the sums of earlier passes.
        has_checkpoints: whether its tapes are short, at the price of more work.
        has_results: whether it reads what `ReverseAt.forward_with_results` kept.
    """

    active: frozenset[str]
    given: frozenset[str] | None
    stacks: tuple[int, ...] = ()
    adds: bool = False
    has_checkpoints: bool = False
    has_results: bool = False


class ForwardWithResults(NamedTuple):
    """A forward pass that keeps values of loops for the backward pass.

    Attributes:
        routine: the pass; its results are all arrays of the call, then the kept values.
        names: the names of the kept values.
    """

    routine: Routine
    names: tuple[str, ...]


class ReverseAt(ABC):
    """The source of gradients for calls of one kind."""

    @abstractmethod
    def check(self, active: frozenset[str]) -> None:
        """Raise GradientError if the gradients of these inputs are not available."""

    @abstractmethod
    def find_reads(self, active: frozenset[str]) -> frozenset[str]:
        """Return the arrays whose values the backward pass reads if the `active` inputs want a gradient."""

    @constant_when_traced
    def find_checked_reads(self, active: frozenset[str]) -> tuple[str, ...]:
        """Return the arrays whose values the backward pass reads, in no particular order.

        Raises:
            GradientError: the gradients of these inputs are not available.
        """
        self.check(active)
        return tuple(self.find_reads(active))

    def group_outputs(self, active: frozenset[str], given: frozenset[str]) -> tuple[frozenset[str] | None, ...]:
        """Split the outputs that have a cotangent into groups, each of which needs a backward pass of its own.

        None stands for a pass from all outputs, in which those without a cotangent have zeros. An infinite derivative
        times such a zero is NaN; a generated gradient leaves these outputs out instead.
        """
        return (None,)

    def needs_stacks(self, active: frozenset[str]) -> bool:
        """Return True if sizes decide how deep gradient stacks are, and so whether there is a gradient."""
        return False

    def find_stack_depths(
        self, active: frozenset[str], shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """Return the depths of a call's gradient stacks, one for each kernel; 0 where the engine's default is enough.

        Args:
            active: the inputs that want a gradient.
            shapes: the shapes of all arrays, without batch.
            values: the values of scalar and template arguments.
        """
        return ()

    def forward_with_results(
        self, key: CallKey, active: frozenset[str], makes: Sequence[Make]
    ) -> ForwardWithResults | None:
        """Return a forward pass that keeps values to make the backward pass faster; None if there are none."""
        return None

    @abstractmethod
    def backward(self, key: CallKey, wish: Wish) -> Routine:
        """Return the routine of the backward pass."""


class Reverse(ABC):
    """A source of gradients for one op."""

    name: str

    @abstractmethod
    def specialize(self, key: CallKey) -> ReverseAt:
        """Return the source of gradients for calls of one kind."""
