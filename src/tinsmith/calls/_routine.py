"""Routines: short lists of actions that passes consist of, on memory that they know by name.

Forward passes, reverse kernels of an engine or of a user, generated backward passes and derivatives of any order are
routines. A routine lists the memory that a run is given, the memory that it allocates, its launches, and its results.
The sizes of the memory are formulas over a few numbers (`spec.Sizing`). `_executor` turns a routine into a function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ..engines import DTYPES
from ..ir import nodes
from ..passes.adjoint import Copy
from ._key import CallKey
from ._steps import RoutineLaunch

if TYPE_CHECKING:
    from ..passes.adjoint import TapeSize


@dataclass(frozen=True)
class Input:
    """An array that the caller passes to a forward pass; `place` is its position among the inputs."""

    name: str
    place: int

    @property
    def like(self) -> str:
        """The array that has the same sizes."""
        return self.name


@dataclass(frozen=True)
class Saved:
    """Memory that a backward pass is given: a value that the call saved, or a copy of it if the pass writes there."""

    name: str
    is_copied: bool = False

    @property
    def like(self) -> str:
        """The array that has the same sizes."""
        return self.name


@dataclass(frozen=True)
class Cotangent:
    """Memory that a backward pass is given: the adjoint of an output. It is zeros if the output has no cotangent.

    Attributes:
        like: the output; `number` is its place among the outputs.
        is_copied: whether the pass writes there.
    """

    name: str
    like: str
    number: int
    is_copied: bool


@dataclass(frozen=True)
class Make:
    """Memory that is allocated, with the sizes of the array `like`, and with its dtype if there is no `type`.

    If `is_wide`, each sample of the batch has its own.
    """

    name: str
    like: str
    is_zero: bool = True
    is_wide: bool = False
    type: str = ""


@dataclass(frozen=True)
class Take:
    """The memory of an input that nothing reads after the call, under another name: kernels change it in place."""

    name: str
    of: str


@dataclass(frozen=True)
class Tapes:
    """An action that allocates the tapes of a task.

    Attributes:
        sizes: the sizes of each tape.
        iterations: the number of parallel iterations of the task: a formula, or a launch that stores it in `total`.
        counts_entries: a launch that counts the entries of each iteration, for tapes without a formula.
        renamed: the op's names for the arguments in formulas.
    """

    sizes: tuple[TapeSize, ...]
    iterations: nodes.Expr | RoutineLaunch
    total: str
    counts_entries: RoutineLaunch | None
    renamed: Mapping[str, str]

    @property
    def is_counted(self) -> bool:
        """Whether a kernel has to run before the sizes are known."""
        return self.counts_entries is not None or not isinstance(self.iterations, nodes.Expr)

    @property
    def launches(self) -> tuple[RoutineLaunch, ...]:
        """The launches that count iterations and entries."""
        own = () if isinstance(self.iterations, nodes.Expr) else (self.iterations,)
        return own if self.counts_entries is None else (*own, self.counts_entries)

    def with_launches(self, change: Callable[[RoutineLaunch], RoutineLaunch]) -> Tapes:
        """Return the same action, with each launch replaced by `change(launch)`."""
        iterations = self.iterations if isinstance(self.iterations, nodes.Expr) else change(self.iterations)
        counts = None if self.counts_entries is None else change(self.counts_entries)
        return replace(self, iterations=iterations, counts_entries=counts)

    @property
    def names(self) -> list[str]:
        """The names of the tapes' arrays, and of the arguments that pass their depths to kernels."""
        depths = [size.depth[0] for size in self.sizes if size.depth]
        return [*(name for size in self.sizes for name, _, _ in size.arrays), *depths]


@dataclass(frozen=True)
class Result:
    """A result of a pass: some memory; or its sum over the samples of a batch, if `is_summed`."""

    name: str
    is_summed: bool = False


Given = Input | Saved | Cotangent
Action = RoutineLaunch | Make | Copy | Take | Tapes


@dataclass(frozen=True, eq=False)
class Routine:
    """The actions of a pass, in order, for calls of any sizes.

    Attributes:
        given: memory that a run is given.
        makes: memory that it allocates first, once for all samples.
        actions: what it does then, in order.
        results: what it returns; None in place of a result that was not asked for.
        arrays: the types and ranks of arrays that are not the call's, by name.
        is_looped: whether the samples of a batch run one by one.
        has_long_tapes: whether another routine does the same with shorter tapes.
    """

    given: tuple[Given, ...]
    makes: tuple[Make, ...]
    actions: tuple[Action, ...]
    results: tuple[Result | None, ...]
    arrays: Mapping[str, nodes.Array]
    is_looped: bool = False
    has_long_tapes: bool = False

    def dtype(self, key: CallKey, name: str) -> torch.dtype:
        """Return the dtype of an array of the call, or of a generated kernel."""
        return key.dtypes[name] if name in key.dtypes else DTYPES[self.arrays[name].type]

    @property
    def launches(self) -> Iterator[RoutineLaunch]:
        """Every launch, including those that count iterations and entries of tapes."""
        for action in self.actions:
            match action:
                case RoutineLaunch():
                    yield action
                case Tapes():
                    yield from action.launches

    def with_launches(self, change: Callable[[RoutineLaunch], RoutineLaunch]) -> Routine:
        """Return the same routine, with each launch replaced by `change(launch)`."""
        actions: list[Action] = []
        for action in self.actions:
            match action:
                case RoutineLaunch():
                    actions.append(change(action))
                case Tapes():
                    actions.append(action.with_launches(change))
                case _:
                    actions.append(action)
        return replace(self, actions=tuple(actions))

    def copying(self, names: Collection[str]) -> Routine:
        """Return the same routine, except that it copies these inputs instead of changing them in place."""
        actions = [Copy(one.name, one.of) if isinstance(one, Take) and one.of in names else one for one in self.actions]
        return replace(self, actions=tuple(actions))

    @property
    def in_order(self) -> tuple[Action, ...]:
        """The actions in the order of a run.

        If possible, all memory is allocated first, since successive launches can be written as one group.
        """
        memory = [one for one in self.actions if isinstance(one, Make | Tapes)]
        names = [name for one in memory for name in ([one.name] if isinstance(one, Make) else one.names)]
        is_late = any(isinstance(one, Copy) or (isinstance(one, Tapes) and one.is_counted) for one in self.actions)
        if self.is_looped or is_late or len(set(names)) < len(names):
            return self.actions
        return (*memory, *(one for one in self.actions if not isinstance(one, Make | Tapes)))

    # In text ----------------------------------------------------------------------------------
    def describe(self, key: CallKey) -> Iterator[str]:
        """Yield one line for each action, with the dtypes and sizes of memory; `n0`, `n1`, ... are sizes."""
        for one in self.given:
            match one:
                case Input():
                    yield f"take {self._describe_array(key, one.name, one.like)}"
                case Saved():
                    yield f"take {'a copy of ' if one.is_copied else ''}the saved {one.name}"
                case Cotangent():
                    yield f"take {'a copy of ' if one.is_copied else ''}{one.name}, zeros where there is none"
        for one in self.makes:
            yield self._describe_make(key, one)
        inside = "for each sample: " if self.is_looped else ""
        for action in self.in_order:
            match action:
                case Make():
                    yield inside + self._describe_make(key, action)
                case Copy():
                    yield f"{inside}copy {action.of} to {action.name}"
                case Take():
                    yield f"{inside}change {action.of} in place, as {action.name}"
                case Tapes():
                    counted = "count entries, then " if action.is_counted else ""
                    yield f"{inside}{counted}allocate tapes {', '.join(action.names)}"
                case RoutineLaunch():
                    yield f"{inside}launch {action.name}({', '.join(action.memory)})"
        results = (one for one in self.results if one is not None)
        names = [f"the sum of {one.name} over the batch" if one.is_summed else one.name for one in results]
        yield f"return {', '.join(names)}"

    def _describe_make(self, key: CallKey, one: Make) -> str:
        batch = "one for each sample, " if one.is_wide else ""
        filled = "zeros" if one.is_zero else "not filled"
        return f"allocate {self._describe_array(key, one.name, one.like, one.type)}: {batch}{filled}"

    def _describe_array(self, key: CallKey, name: str, like: str, type_name: str = "") -> str:
        is_known = like in key.dtypes or like in self.arrays
        dtype = DTYPES[type_name] if type_name else self.dtype(key, like) if is_known else None
        shape = key.sizing.shapes.get(like)
        sizes = "" if shape is None else f"[{', '.join(map(str, shape))}]"
        return f"{name}{sizes}" + ("" if dtype is None else f": {str(dtype).removeprefix('torch.')}")
