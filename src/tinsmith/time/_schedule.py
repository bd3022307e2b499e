"""Schedule: the states that a scan keeps, and the order in which its backward pass recomputes the others.

Positions count states: position 0 is before the first step, position n after n steps. A schedule does not depend on
tensors. It is a list of actions, which can be counted and tested separately.

If few states fit into memory, the optimal schedule is binomial: "Algorithm 799: revolve", Griewank and Walther, ACM
TOMS 26 (2000). With s states, and each step run at most r times, it reverses C(s + r, s) steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

from .._lazy import lazy


class Restore(NamedTuple):
    """The action that returns to the state in a slot."""

    slot: int


class Advance(NamedTuple):
    """The action that runs the steps from one position to another."""

    start: int
    end: int


class Keep(NamedTuple):
    """The action that copies the current state to a slot."""

    slot: int


class Reverse(NamedTuple):
    """The action that propagates the gradient back over the step from this position, where the current state is."""

    position: int


Action = Restore | Advance | Keep | Reverse


@dataclass(frozen=True)
class Schedule:
    """The states that the forward pass keeps, and the actions of the backward pass.

    Slot 0 is the initial state, which belongs to the caller and takes no memory.

    Attributes:
        length: the number of steps.
        slots: for a binomial schedule, the number of states that are kept at once besides the initial one.
        every: keep every n-th state, and in the backward pass all states between two of them; None for a binomial
            schedule.
    """

    length: int
    slots: int = 0
    every: int | None = None

    @lazy
    def stored_positions(self) -> tuple[int, ...]:
        """Return the positions whose states the forward pass keeps, in the order of their slots."""
        if self.every is not None:
            return tuple(range(0, self.length, self.every)) or (0,)
        positions = [0]
        while (following := self._find_following(positions[-1], self.length, len(positions))) is not None:
            positions.append(following)
        return tuple(positions)

    @property
    def capacity(self) -> int:
        """The number of states besides the initial one for which memory is needed."""
        return (
            self.slots
            if self.every is None
            else len(self.stored_positions) - 1 + min(self.every, max(self.length, 1)) - 1
        )

    def reversal(self) -> Iterator[Action]:
        """Yield the actions of the backward pass in order."""
        stack, end, present = list(self.stored_positions), self.length, -1
        while end:
            top = stack[-1]
            if present != end - 1 and present != top:
                yield Restore(len(stack) - 1)
                present = top
            following = self._find_following(present, end, len(stack)) if present == top else None
            if following is None:
                if present < end - 1:
                    yield Advance(present, end - 1)
                yield Reverse(end - 1)
                if top == end - 1 and top:
                    stack.pop()
                end, present = end - 1, -1
            else:
                yield Advance(present, following)
                present = following
                if following < end - 1:
                    yield Keep(len(stack))
                    stack.append(following)

    def _find_following(self, position: int, end: int, depth: int) -> int | None:
        """Return the position of the next state to keep after a kept one at `position`; None if there is none.

        `end` is the position up to which steps remain to be reversed; `depth` is the number of states kept so far.
        """
        count = end - position
        if count < 2:
            return None
        if self.every is not None:
            return position + 1
        free = self.slots + 1 - depth
        return position + split(count, free + 1) if free > 0 else None

    @lazy
    def counts(self) -> Counts:
        """Count the steps that the backward pass runs again, and find the largest number of states kept at once."""
        again, peak = 0, len(self.stored_positions) - 1
        for action in self.reversal():
            if isinstance(action, Advance):
                again += action.end - action.start
            elif isinstance(action, Keep):
                peak = max(peak, action.slot)
        return Counts(again, peak)


class Counts(NamedTuple):
    """The cost of a schedule.

    Attributes:
        again: the number of steps that the backward pass runs again.
        most_states: the largest number of states that are kept at once.
    """

    again: int
    most_states: int


def split(count: int, states: int) -> int:
    """Return the optimal number of steps after which to keep the next state, in a binomial schedule.

    All numbers between two bounds are optimal; this is the upper bound.

    Args:
        count: the number of steps to reverse, at least 2.
        states: the number of states that can be kept, including the one before the first step, at least 2.
    """
    repeats = _count_repeats(count, states)
    return max(1, min(_count_reachable(states, repeats - 1), count - _count_reachable(states - 1, repeats - 1)))


def _count_repeats(count: int, states: int) -> int:
    """Return the smallest number of runs per step with which the states suffice to reverse `count` steps."""
    repeats = 1
    while _count_reachable(states, repeats) < count:
        repeats += 1
    return repeats


def _count_reachable(states: int, repeats: int) -> int:
    """Return the number of steps that can be reversed with these numbers of states and of runs per step."""
    return comb(states + repeats, states) if repeats >= 0 else 0
