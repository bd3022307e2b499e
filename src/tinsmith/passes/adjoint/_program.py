"""What a backward pass does: kernels to launch in order, and the memory that they work on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from ...ir import Type, nodes
from ._copy import Copy
from ._plan import Decision
from ._tapes import TapeSize


@dataclass(frozen=True)
class Fresh:
    """Memory with the shape of an array of the op, all zeros; of its type if none is said."""

    name: str
    like: str
    type: str = ""


@dataclass(frozen=True)
class Run:
    """A launch.

    Attributes:
        kernel: what is launched.
        source: the number of the op's launch that it comes from.
        memory: which memory each of its arrays is, where that has another name.
    """

    kernel: nodes.Kernel
    source: int
    memory: Mapping[str, str]


@dataclass(frozen=True)
class Reserve:
    """Tapes for a task.

    Attributes:
        iterations: how many parallel iterations it has: computed from sizes and arguments, or by a kernel that
            stores it in the array `total`.
        count: counts, where a tape has no formula, what each iteration needs.
        source: the number of the op's launch that it is for: formulas ask for its arguments.
    """

    tapes: tuple[TapeSize, ...]
    iterations: nodes.Expr | Run
    total: str
    count: Run | None
    source: int = 0

    @property
    def arguments(self) -> dict[str, tuple[Type, tuple[int, ...]]]:
        """Return the arguments of kernels with these tapes: how many entries an iteration may need on each."""
        return {size.depth[0]: (Type.I32, ()) for size in self.tapes if size.depth}

    @property
    def arrays(self) -> dict[str, nodes.Array]:
        """Return the arrays that hold counted sizes, and where the part of each iteration starts."""
        names = [name for size in self.tapes for name in size.starts or ()]
        return {
            **{name: nodes.Array(name, Type.I32, 1) for name in names},
            self.total: nodes.Array(self.total, Type.I32, 0),
        }


Action: TypeAlias = Fresh | Copy | Run | Reserve


@dataclass(frozen=True)
class AdjointProgram:
    """A backward pass.

    Attributes:
        actions: what to do, in order.
        arrays: what is known of every array of the op, cells among them.
        gradients: names of the memory of adjoints, by array. Those of outputs are given, others start at zero.
        reads: arrays of the op whose values it reads, as they were after the forward pass.
        spoils: outputs to whose adjoint it writes.
        decisions: where the values come from that it needs.
        notes: what else is to be known of it, in words.
        has_long_tapes: whether checkpoints would make its tapes shorter.
        results: another forward pass with its backward pass, where loops need not run twice.
        whole: adjoints that it stores every element of, so that their memory need not be cleared.
    """

    actions: tuple[Action, ...]
    arrays: Mapping[str, nodes.Array]
    gradients: Mapping[str, str]
    reads: frozenset[str]
    spoils: frozenset[str]
    decisions: tuple[Decision, ...] = ()
    notes: tuple[str, ...] = ()
    has_long_tapes: bool = False
    results: WithResults | None = None
    whole: frozenset[str] = frozenset()

    @property
    def kernels(self) -> tuple[nodes.Kernel, ...]:
        """Return the kernels that it launches, each once."""
        return tuple(dict.fromkeys(run.kernel for run in self.runs))

    @property
    def runs(self) -> Iterator[Run]:
        """Yield every launch, including those that count the entries of tapes."""
        for action in self.actions:
            nested = (action.iterations, action.count) if isinstance(action, Reserve) else (action,)
            yield from (one for one in nested if isinstance(one, Run))

    def with_kernels(self, change: Callable[[nodes.Kernel], nodes.Kernel]) -> AdjointProgram:
        """Return the program with each of its kernels changed, once however often it is launched."""
        # A kernel may be launched for each of thousands of steps.
        change = cache(change)

        def change_run(run: Run) -> Run:
            return replace(run, kernel=change(run.kernel))

        def change_action(one: Action) -> Action:
            if isinstance(one, Run):
                return change_run(one)
            if not isinstance(one, Reserve):
                return one
            iterations = change_run(one.iterations) if isinstance(one.iterations, Run) else one.iterations
            return replace(one, iterations=iterations, count=None if one.count is None else change_run(one.count))

        return replace(self, actions=tuple(map(change_action, self.actions)))


@dataclass(frozen=True)
class WithResults:
    """A forward pass that keeps values of loops, and the backward pass that reads it.

    Attributes:
        forward, backward: the passes.
        sizes: memory for what is kept, for each of the `iterations` of the parallel loop.
    """

    forward: AdjointProgram
    backward: AdjointProgram
    sizes: tuple[TapeSize, ...]
    iterations: nodes.Expr

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the arrays in which values are kept."""
        return tuple(name for size in self.sizes for name, _, _ in size.arrays)
