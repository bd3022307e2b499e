"""Layout: a program over named memory.

Forward passes, reverse kernels of an engine or of a user, generated backward passes and derivatives of any order are
programs: memory that a run gets, memory that it allocates, launches, and results. The sizes of the memory are
formulas over a few numbers (`spec.Sizing`); `_executor` turns a layout into a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from ..engines import DTYPES
from ..ir import nodes
from ..passes.adjoint import Copy, TapeSize
from ._cost import Cost
from ._key import CallKey
from ._steps import Step


class ProgramLaunch(Protocol):
    """A launch of a program, on memory that it knows by name."""

    @property
    def name(self) -> str:
        """The kernel's name."""
        ...

    def step(self, key: CallKey, *, may_vectorize: bool) -> Step:
        """The launch, compiled; with machine vectors only where a run's memory may be looked at before."""
        ...

    def cost(self, key: CallKey) -> Cost | None:
        """What its operations are counted from; None for a kernel that has no form for one thread."""
        ...

    def on_one_thread(self) -> ProgramLaunch:
        """The same launch, on one thread."""
        ...


@dataclass(frozen=True)
class Input:
    """Memory that a forward pass is given: the array in its place among the inputs."""

    name: str
    place: int

    @property
    def like(self) -> str:
        """The array whose sizes it has."""
        return self.name


@dataclass(frozen=True)
class Saved:
    """Memory that a backward pass is given: values that a call kept; a copy where the pass writes there."""

    name: str
    is_copied: bool = False

    @property
    def like(self) -> str:
        """The array whose sizes it has."""
        return self.name


@dataclass(frozen=True)
class Cotangent:
    """Memory that a backward pass is given: the adjoint of an output, of zeros where it has none.

    Attributes:
        like: the output; `number` its place among the outputs.
        is_copied: whether the pass writes there.
    """

    name: str
    like: str
    number: int
    is_copied: bool


@dataclass(frozen=True)
class Make:
    """Memory with the sizes of an array, and with its dtype if no `type` is said; one for each sample if wide."""

    name: str
    like: str
    is_zero: bool = True
    is_wide: bool = False
    type: str = ""


@dataclass(frozen=True)
class Tapes:
    """Room for a task's tapes.

    Attributes:
        sizes: how large each is to be.
        iterations: how many parallel iterations the task has: a formula, or a launch that stores it in `total`.
        counts_entries: counts, where a tape has no formula, what each iteration needs.
        renamed: the op's names for the arguments in formulas.
    """

    sizes: tuple[TapeSize, ...]
    iterations: nodes.Expr | ProgramLaunch
    total: str
    counts_entries: ProgramLaunch | None
    renamed: Mapping[str, str]

    @property
    def is_counted(self) -> bool:
        """Whether a kernel has to run before the sizes are known."""
        return self.counts_entries is not None or not isinstance(self.iterations, nodes.Expr)

    @property
    def launches(self) -> tuple[ProgramLaunch, ...]:
        """Launches that count."""
        own = () if isinstance(self.iterations, nodes.Expr) else (self.iterations,)
        return own if self.counts_entries is None else (*own, self.counts_entries)

    def with_launches(self, change: Callable[[ProgramLaunch], ProgramLaunch]) -> Tapes:
        """The same, with each launch changed."""
        iterations = self.iterations if isinstance(self.iterations, nodes.Expr) else change(self.iterations)
        counts = None if self.counts_entries is None else change(self.counts_entries)
        return replace(self, iterations=iterations, counts_entries=counts)

    @property
    def names(self) -> list[str]:
        """Names of tapes, and of the arguments that tell kernels how deep they are."""
        depths = [size.depth[0] for size in self.sizes if size.depth]
        return [*(name for size in self.sizes for name, _, _ in size.arrays), *depths]


@dataclass(frozen=True)
class Result:
    """A result: some memory; its sum over the samples of a batch where each has one of its own."""

    name: str
    is_summed: bool = False


Given = Input | Saved | Cotangent
Action = ProgramLaunch | Make | Copy | Tapes


@dataclass(frozen=True, eq=False)
class Routine:
    """A program, whatever the sizes are.

    Attributes:
        given: memory that a run is given.
        makes: memory that it makes first, once for all samples.
        actions: what it does then, in order.
        results: what it gives; None in place of something that nobody asked for.
        arrays: what is known of arrays that are not the call's, by name.
        is_looped: whether samples of a batch are run one by one.
        has_long_tapes: whether another program does the same with shorter tapes.
    """

    given: tuple[Given, ...]
    makes: tuple[Make, ...]
    actions: tuple[Action, ...]
    results: tuple[Result | None, ...]
    arrays: Mapping[str, nodes.Array]
    is_looped: bool = False
    has_long_tapes: bool = False

    def dtype(self, key: CallKey, name: str) -> torch.dtype:
        """Of an array of the call, or of a generated kernel."""
        return key.dtypes[name] if name in key.dtypes else DTYPES[self.arrays[name].type]

    @property
    def launches(self) -> Iterator[ProgramLaunch]:
        """Every launch, those that count entries of tapes too."""
        for action in self.actions:
            match action:
                case Make() | Copy():
                    pass
                case Tapes():
                    yield from action.launches
                case _:
                    yield action

    def with_launches(self, change: Callable[[ProgramLaunch], ProgramLaunch]) -> Routine:
        """The same program, with each launch changed."""
        actions: list[Action] = []
        for action in self.actions:
            match action:
                case Make() | Copy():
                    actions.append(action)
                case Tapes():
                    actions.append(action.with_launches(change))
                case _:
                    actions.append(change(action))
        return replace(self, actions=tuple(actions))

    @property
    def in_order(self) -> tuple[Action, ...]:
        """What a run does: first all memory where that can be, for launches with nothing between go out together."""
        memory = [one for one in self.actions if isinstance(one, Make | Tapes)]
        names = [name for one in memory for name in ([one.name] if isinstance(one, Make) else one.names)]
        is_late = any(isinstance(one, Copy) or (isinstance(one, Tapes) and one.is_counted) for one in self.actions)
        if self.is_looped or is_late or len(set(names)) < len(names):
            return self.actions
        return (*memory, *(one for one in self.actions if not isinstance(one, Make | Tapes)))
