"""The interface of sources of gradients, the replaceable part of an op.

A `Reverse` says, for a kind of call, which values it reads, and makes the backward pass. Some launch one kernel
for each of the op's (`KernelReverse`: the engine's own reverse mode, or one written by hand); the generated one is
a program of several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...tracing import constant_when_traced
from .._key import CallKey
from .._routine import Make, Routine


class Wish(NamedTuple):
    """Which backward pass is wanted.

    Attributes:
        active: inputs that want a gradient.
        given: outputs that have a cotangent, None for all.
        stacks: depths of gradient stacks (`ReverseAt.stacks`).
        adds: whether it adds to gradients that hold something already: the sums of earlier passes.
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
    """A forward pass that keeps values of loops.

    Attributes:
        routine: the pass; its results are all arrays of the call, then what it keeps.
        names: of what it keeps.
    """

    routine: Routine
    names: tuple[str, ...]


class ReverseAt(ABC):
    """Where the gradient comes from, for calls of one kind."""

    @abstractmethod
    def check(self, active: frozenset[str]) -> None:
        """Raise GradientError where these gradients are not available."""

    @abstractmethod
    def reads(self, active: frozenset[str]) -> frozenset[str]:
        """Arrays whose values the backward pass reads when `active` inputs want a gradient."""

    @constant_when_traced
    def find_read(self, active: frozenset[str]) -> tuple[str, ...]:
        """Return the same, in no certain order. Raise GradientError where these gradients are not available."""
        self.check(active)
        return tuple(self.reads(active))

    def groups(self, active: frozenset[str], given: frozenset[str]) -> tuple[frozenset[str] | None, ...]:
        """Of the outputs that have a cotangent, those whose part of the gradients comes from one backward pass.

        None stands for a pass for all outputs, in which those without a cotangent have one of zeros. A slope of
        infinity makes NaN of such zeros; a generated gradient leaves these outputs out instead.
        """
        return (None,)

    def needs_stacks(self, active: frozenset[str]) -> bool:
        """Whether sizes decide how deep an engine's gradient stacks are, and so if there is a gradient at all."""
        return False

    def stacks(
        self, active: frozenset[str], shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
    ) -> tuple[int, ...]:
        """How deep they are for a call: for each kernel, 0 where there is none to set.

        Args:
            active: inputs that want a gradient.
            shapes: of all arrays, without batch.
            values: of scalar and template arguments.
        """
        return ()

    def forward_with_results(
        self, key: CallKey, active: frozenset[str], makes: Sequence[Make]
    ) -> ForwardWithResults | None:
        """Another forward pass, which keeps what makes the backward pass shorter; None where nothing does."""
        return None

    @abstractmethod
    def backward(self, key: CallKey, wish: Wish) -> Routine:
        """The backward pass."""


class Reverse(ABC):
    """A source of gradients for one op."""

    name: str

    @abstractmethod
    def at(self, key: CallKey) -> ReverseAt:
        """The source of gradients for calls of one kind."""
