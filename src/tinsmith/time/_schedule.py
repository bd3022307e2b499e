"""Schedule: the states that a scan keeps, and the order in which its backward pass recomputes the others.

Positions count states: position 0 is before the first step, position n after n steps. A schedule knows nothing of
tensors. It is a list of actions, so it can be counted and tested separately.

With few states the best schedule is binomial: "Algorithm 799: revolve", Griewank and Walther, ACM TOMS 26 (2000).
With s states, and each step run at most r times, it reverses C(s + r, s) steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import NamedTuple

from .._lazy import lazy


class Restore(NamedTuple):
    """Go back to the state that a slot holds."""

    slot: int


class Advance(NamedTuple):
    """Run the steps from one position to another."""

    start: int
    end: int


class Keep(NamedTuple):
    """Put the present state into a slot."""

    slot: int


class Reverse(NamedTuple):
    """Pull the gradient back over the step that begins at this position, where the present state is."""

    position: int


Action = Restore | Advance | Keep | Reverse


@dataclass(frozen=True)
class Schedule:
    """What is kept in the forward pass, and what the backward pass does.

    Slot 0 holds the state at the beginning, which is the caller's and takes no memory.

    Attributes:
        length: how many steps there are.
        slots: of a binomial schedule, how many states are kept at once besides the first.
        every: keep every n-th state, and those of one stretch between two of them; None for a binomial schedule.
    """

    length: int
    slots: int = 0
    every: int | None = None

    @lazy
    def stored_positions(self) -> tuple[int, ...]:
        """Positions whose states the forward pass keeps, in the order of their slots."""
        if self.every is not None:
            return tuple(range(0, self.length, self.every)) or (0,)
        positions = [0]
        while (following := self._following(positions[-1], self.length, len(positions))) is not None:
            positions.append(following)
        return tuple(positions)

    @property
    def capacity(self) -> int:
        """For how many states besides the first there must be memory."""
        return (
            self.slots
            if self.every is None
            else len(self.stored_positions) - 1 + min(self.every, max(self.length, 1)) - 1
        )

    def reversal(self) -> Iterator[Action]:
        """What the backward pass does, in order."""
        stack, end, present = list(self.stored_positions), self.length, -1
        while end:
            top = stack[-1]
            if present != end - 1 and present != top:
                yield Restore(len(stack) - 1)
                present = top
            following = self._following(present, end, len(stack)) if present == top else None
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

    def _following(self, position: int, end: int, depth: int) -> int | None:
        """The next state to keep between a kept one and `end`, with `depth` states kept; None where there is none."""
        count = end - position
        if count < 2:
            return None
        if self.every is not None:
            return position + 1
        free = self.slots + 1 - depth
        return position + split(count, free + 1) if free > 0 else None

    @lazy
    def counts(self) -> Counts:
        """How many steps the backward pass runs again, and how many states are kept at once at most."""
        again, peak = 0, len(self.stored_positions) - 1
        for action in self.reversal():
            if isinstance(action, Advance):
                again += action.end - action.start
            elif isinstance(action, Keep):
                peak = max(peak, action.slot)
        return Counts(again, peak)


class Counts(NamedTuple):
    """What a schedule costs.

    Attributes:
        again: steps that the backward pass runs again.
        most_states: how many states are kept at once, at most.
    """

    again: int
    most_states: int


def split(count: int, states: int) -> int:
    """After how many of `count` steps to keep a state, with so many `states`, that before the first step included.

    Any number between two bounds is best; this is the upper one. At least two steps and two states.
    """
    repeats = _repeats(count, states)
    return max(1, min(_reach(states, repeats - 1), count - _reach(states - 1, repeats - 1)))


def least_steps(count: int, states: int) -> int:
    """Of all schedules, the fewest steps that reverse `count` steps, besides the reversed ones themselves."""
    if count < 2:
        return 0
    repeats = _repeats(count, states)
    return repeats * count - _reach(states + 1, repeats - 1)


def _repeats(count: int, states: int) -> int:
    """How often a step is run at most: the smallest number for which the states suffice."""
    repeats = 1
    while _reach(states, repeats) < count:
        repeats += 1
    return repeats


def _reach(states: int, repeats: int) -> int:
    """How many steps can be reversed with so many states and repeats."""
    return comb(states + repeats, states) if repeats >= 0 else 0
