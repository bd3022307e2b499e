"""Cost: estimates the time of a launch before it runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from .._config import OPERATIONS_PER_ELEMENT
from .._machine import OPERATION, OPERATION_IN_VECTORS, UNCOUNTED, Machine
from ..compiling import remember
from ..ir import nodes, walk
from ..passes import formula_text, runs_in_strips, sum_in_locals
from ..passes.adjoint import count_bytes, count_loss_by_atomics, count_operations, count_parallel_loops
from ..spec import Size
from ._key import CallKey


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


class Counts(NamedTuple):
    """What a launch does, as formulas of sizes and of the kernel's arguments.

    Attributes:
        operations: the number of operations.
        bytes: the number of bytes that it loads and stores; None if the operations alone decide.
        loss: the time that several threads lose by atomics: above 0, one thread is faster.
    """

    operations: nodes.Expr
    bytes: nodes.Expr | None
    loss: nodes.Expr


def count_work(body: nodes.Kernel, arrays: Collection[str], arguments: Collection[str], threads: int) -> Counts:
    """Count what a launch of a kernel does.

    Args:
        body: the kernel.
        arrays: those whose sizes formulas may contain.
        arguments: those that formulas may contain.
        threads: the number of threads that share a launch.
    """

    def is_known(formula: nodes.Expr) -> bool:
        parts = tuple(walk.parts(formula))
        asked = {one.array for one in parts if isinstance(one, nodes.Size)}
        names = {one.name for one in parts if isinstance(one, nodes.Argument)}
        return asked.issubset(arrays) and names.issubset(arguments)

    # As the kernel runs: what a loop adds to its own element is summed up, and added once.
    summed = sum_in_locals(body)
    return Counts(
        count_operations(body, is_known),
        count_bytes(body, is_known) if runs_in_strips(summed) else None,
        count_loss_by_atomics(summed, is_known, threads),
    )


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

    def count_work(self, key: CallKey, counted: dict[Any, Counts]) -> Counts | None:
        """Count what a launch does, or read it from disk; None for a kernel that cannot be analyzed.

        `counted` holds what is known of other launches: most differ in the names of their arguments alone.
        """
        body = self.body
        if body is None:
            return None
        arguments = [name for name in body.arguments if self.renamed.get(name, name) in key.signature.scalars]
        given = body, frozenset(self.shapes), frozenset(arguments), self.threads
        if given not in counted:
            engine = key.signature.firsts[0].engine

            def compute() -> tuple[Any, ...]:
                return tuple(count_work(*given))

            counted[given] = Counts(*remember(engine, "counts", lambda: given, compute))
        return counted[given]

    def formula(self, key: CallKey, counts: Counts | None, repeats: int) -> str:
        """Return the number of operations of a launch per parallel loop, as a Python expression in sizes and scalars.

        Args:
            key: of the calls.
            counts: what a launch does.
            repeats: how many launches of the kernel the program has.
        """
        if counts is None:
            sums = [" * ".join(map(str, shape)) or "1" for shape in self.shapes.values()]
            # A kernel that is launched for each step of time touches a part of `x[t, i]` each time.
            return f"{OPERATIONS_PER_ELEMENT} * ({' + '.join(sums) or '0'}) // {repeats}"
        return self._write_per_loop(key, counts.operations)

    def traffic(self, key: CallKey, counts: Counts | None) -> str:
        """Return the number of bytes that a launch loads and stores per parallel loop, as `formula` does.

        It is "" if the operations alone decide.
        """
        return "" if counts is None or counts.bytes is None else self._write_per_loop(key, counts.bytes)

    def bounds(self, counts: Counts | None, machine: Machine) -> Bounds:
        """Return from when on several threads are faster than one on a machine."""
        seconds = machine.break_even(self.threads)
        if counts is None:
            return Bounds(seconds, seconds / UNCOUNTED, math.inf)
        if counts.bytes is not None:
            return Bounds(seconds, seconds / OPERATION_IN_VECTORS, seconds / machine.byte)
        return Bounds(seconds, seconds / OPERATION, math.inf)

    def loss_by_atomics(self, key: CallKey, counts: Counts | None) -> str:
        """Return the time that several threads lose by atomics, as a Python expression: above 0, one thread is faster.

        It is "0" for a kernel that cannot be analyzed.
        """
        return "0" if counts is None else self._write(key, counts.loss)

    def _write_per_loop(self, key: CallKey, formula: nodes.Expr) -> str:
        assert self.body is not None
        text, loops = self._write(key, formula), count_parallel_loops(self.body)
        return text if loops < 2 else f"({text}) // {loops}"

    def _write(self, key: CallKey, formula: nodes.Expr) -> str:
        """Write a formula as the text of a Python expression over array sizes and scalar arguments."""
        numbers = key.launch_numbers

        def size(array: str, axis: int) -> str:
            return str(self.shapes[array][axis])

        def argument(name: str) -> str:
            outer = self.renamed.get(name, name)
            return str(numbers[outer]) if outer in numbers else f"scalars[{outer!r}]"

        return formula_text(formula, size, argument)
