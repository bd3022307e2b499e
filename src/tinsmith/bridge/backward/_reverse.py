"""Where the gradient comes from: the one replaceable part of an op.

A `Reverse` says, for a kind of call, which values it reads, and makes the backward pass. Some launch one kernel
for each of the op's (`KernelReverse`: the engine's own reverse mode, or one written by hand); the generated one is
a program of several.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from .._case import Case
from .._steps import Situation
from ._pullback import Pullback


class ReverseAt(ABC):
    """Where the gradient comes from, for calls of one kind.

    `depends_on_sizes` says whether sizes decide if there is a gradient at all.
    """

    depends_on_sizes: bool = False

    @abstractmethod
    def check(self, active: frozenset[str]) -> None:
        """Raise GradientError where these gradients cannot be had."""

    @abstractmethod
    def reads(self, active: frozenset[str]) -> frozenset[str]:
        """Arrays whose values the backward pass reads when `active` inputs want a gradient."""

    def groups(self, active: frozenset[str], given: frozenset[str]) -> tuple[frozenset[str] | None, ...]:
        """Of the outputs that have a cotangent, those whose part of the gradients comes from one backward pass.

        None stands for a pass for all outputs, in which those without a cotangent have one of zeros. A slope of
        infinity makes NaN of such zeros; a generated gradient leaves these outputs out instead.
        """
        return (None,)

    @abstractmethod
    def backward(
        self, situation: Situation, active: frozenset[str], *, is_serial: bool, given: frozenset[str] | None = None
    ) -> Pullback:
        """The backward pass of a plan. `given` are the outputs that have a cotangent, None for all."""


class Reverse(ABC):
    """A source of gradients for one op. `scalars` are the arguments that its backward passes are made for."""

    name: str
    scalars: tuple[str, ...] = ()

    @abstractmethod
    def at(self, case: Case) -> ReverseAt:
        """The source of gradients for calls of one kind."""
