"""Cost: estimates the time of a launch before it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .._config import OPERATIONS_PER_ELEMENT
from .._machine import OPERATION, OPERATION_IN_VECTORS, SPEED_OF_LANES, UNCOUNTED, Machine
from ..ir import nodes, walk
from ..passes import find_data_dependent_loops, formula_text, runs_in_strips, sum_in_locals
from ..passes.adjoint import count_bytes, count_loss_by_atomics, count_operations, count_parallel_loops
from ..spec import Size
from ._key import CallKey

IsKnown = Callable[[nodes.Expr], bool]


class Bounds(NamedTuple):
    """The thresholds of a launch above which several threads are faster than one.

    Attributes:
        seconds: the time of a launch on one thread.
        operations: the number of operations.
        bytes: the number of bytes that are loaded and stored; infinite if operations alone decide.
    """

    seconds: float
    operations: float
    bytes: float


class Cost(NamedTuple):
    """The facts from which a launch's operations are counted.

    Attributes:
        kernel: identifies the kernel: launches with an equal one share measured times.
        body: the kernel's IR, None if the source cannot be analyzed.
        shapes: the shapes of the kernel's arrays that belong to the call: sizes, or symbols for them.
        renamed: the op's names for the kernel's arguments.
        threads: the number of engine threads that share a launch.
    """

    kernel: Any
    body: nodes.Kernel | None
    shapes: Mapping[str, Sequence[Size]]
    renamed: Mapping[str, str]
    threads: int

    @property
    def has_parallel_loops(self) -> bool:
        """Whether threads can share a launch; True for a kernel that cannot be analyzed."""
        return self.body is None or count_parallel_loops(self.body) > 0

    def formula(self, key: CallKey, repeats: int) -> str:
        """Return the number of operations of a launch per parallel loop, as a Python expression in sizes and scalars.

        Args:
            key: of the calls.
            repeats: how many launches of the kernel the program has.
        """
        if self.body is None:
            sums = [" * ".join(map(str, shape)) or "1" for shape in self.shapes.values()]
            # A kernel that is launched for each step of time touches a part of `x[t, i]` each time.
            return f"{OPERATIONS_PER_ELEMENT} * ({' + '.join(sums) or '0'}) // {repeats}"
        return self._count_per_loop(key, count_operations)

    def traffic(self, key: CallKey) -> str:
        """Return the number of bytes that a launch loads and stores per parallel loop, as `formula` does."""
        return self._count_per_loop(key, count_bytes)

    def bounds(self, machine: Machine) -> Bounds:
        """Return from when on several threads are faster than one on a machine."""
        if self.body is None:
            seconds = machine.break_even(self.threads)
            return Bounds(seconds, seconds / UNCOUNTED, math.inf)
        # Only the form for several threads has lanes.
        has_lanes = any(find_data_dependent_loops(self.body.body))
        seconds = machine.break_even(self.threads, SPEED_OF_LANES if has_lanes else 1)
        # As the kernel runs: what a loop adds to its own element is no atomic then.
        if runs_in_strips(sum_in_locals(self.body)):
            return Bounds(seconds, seconds / OPERATION_IN_VECTORS, seconds / machine.byte)
        return Bounds(seconds, seconds / OPERATION, math.inf)

    def _count_per_loop(self, key: CallKey, count: Callable[[nodes.Kernel, IsKnown], nodes.Expr]) -> str:
        assert self.body is not None
        text = self._count(key, self.body, count)
        loops = count_parallel_loops(self.body)
        return text if loops < 2 else f"({text}) // {loops}"

    def loss_by_atomics(self, key: CallKey) -> str:
        """Return the time that several threads lose by atomics, as a Python expression: above 0, one thread is faster.

        It is "0" for a kernel that cannot be analyzed.
        """
        if self.body is None:
            return "0"
        # The kernel that runs sums up what a loop adds to one element, and adds it once.
        body = sum_in_locals(self.body)
        return self._count(key, body, lambda body, is_known: count_loss_by_atomics(body, is_known, self.threads))

    def _count(self, key: CallKey, body: nodes.Kernel, count: Callable[[nodes.Kernel, IsKnown], nodes.Expr]) -> str:
        """Count something in a launch with `count`. Return the result as a Python expression in sizes and scalars."""
        known, numbers = {*key.signature.scalars}, key.launch_numbers

        def outer_name(argument: str) -> str:
            return self.renamed.get(argument, argument)

        def is_known(formula: nodes.Expr) -> bool:
            parts = tuple(walk.parts(formula))
            arrays = {one.array for one in parts if isinstance(one, nodes.Size)}
            names = {outer_name(one.name) for one in parts if isinstance(one, nodes.Argument)}
            return self.shapes.keys() >= arrays and known >= names

        def size(array: str, axis: int) -> str:
            return str(self.shapes[array][axis])

        def argument(name: str) -> str:
            outer = outer_name(name)
            return str(numbers[outer]) if outer in numbers else f"scalars[{outer!r}]"

        return formula_text(count(body, is_known), size, argument)
