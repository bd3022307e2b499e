"""Numbers: finds indices out of bounds, divisions by zero and overflows in a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ...engines import Number, Watch
from ...frontend import Columns
from ...ir import Type, nodes, types
from ...linter import Cuts, Finding, Severity
from .._budget import Budget
from ._integers import find_hashing_lines, format_operation, is_unsigned, limits, loses_bits, overflow
from ._log import Log
from ._non_finite import NonFiniteOrigins
from ._position import ExecutionPosition, Place


class LongestWhile(NamedTuple):
    """The execution of a `while` that took the most operations so far: its line, its iterations, and its operations."""

    line: int
    turns: int
    operations: int


class Numbers(Watch):
    """Observes all operations of a run.

    Attributes:
        line: the last line that ran.
        longest_while: the loop in which a stopped run probably hung.
        reached: the lines that ran, by file.
    """

    def __init__(
        self, here: ExecutionPosition, log: Log, columns: Columns, budget: Budget, origins: NonFiniteOrigins
    ) -> None:
        self._here = here
        self._log = log
        self._columns = columns
        self._origins = origins
        self._hashing: frozenset[int] = frozenset()
        self._cuts = Cuts()
        self.line = 0
        self._budget = budget
        self._entered: dict[int, int] = {}
        self.longest_while = LongestWhile(0, 0, 0)
        self.reached: dict[str, set[int]] = {}
        self._causes: dict[Place, tuple[str, int, int]] = {}
        self._lines: set[int] = set()

    def begin(self, kernel: nodes.Kernel) -> None:
        """Begin a kernel."""
        self._hashing = find_hashing_lines(kernel)
        self._lines = self.reached.setdefault(kernel.path, set())

    def on_statement(self, operations: int, line: int) -> None:
        """Record that a statement's line ran, and subtract its operations from the budget."""
        self._lines.add(line)
        self._budget.count(operations)

    def on_begin(self, held: Mapping[str, Any]) -> None:
        """Keep the mapping of the kernel's locals, which changes during the run."""
        self._here.held = held

    def on_while_turn(self, line: int, turn: int) -> None:
        """Update the longest `while` by the operations of one at `line` since it was entered."""
        if turn == 0:
            self._entered[line] = self._budget.left
        spent = self._entered[line] - self._budget.left
        if spent > self.longest_while.operations:
            self.longest_while = LongestWhile(line, turn, spent)

    def on_index_out_of_range(self, array: str, index: tuple[int, ...], line: int, *, is_read: bool) -> None:
        """Report an index out of bounds (TS604)."""
        here = self._here
        shape, name = here.shape(array), here.find_label(array)
        starts = here.kernel.arrays[array].offset or (0,) * len(shape)
        side = "before" if any(at < start for at, start in zip(index, starts, strict=True)) else "behind"

        def words() -> Finding:
            did = "is read" if is_read else "is written"
            inside = ", ".join(map(str, index))
            what = f"`{name}[{inside}]` {did}{here.inside(line)}, and `{name}` has the shape {shape}: "
            ranges = [range(start, start + size) for start, size in zip(starts, shape, strict=True)]
            axis = next(axis for axis, (at, inside) in enumerate(zip(index, ranges, strict=True)) if at not in inside)
            if starts[axis]:
                what += f"the first index is {starts[axis]}, the last {ranges[axis].stop - 1}"
            elif index[axis] < 0:
                what += f"{index[axis]} is negative, which no engine takes for a place counted from the end"
            else:
                what += f"the last index is {shape[axis] - 1}" if shape[axis] else "it has no element"
            what += "; other memory is " + ("read" if is_read else "overwritten")
            known = here.list_known_values(line)
            place = self._columns.element(here.kernel.path, line, name, is_read=is_read, index=index, known=known)
            bound = f"{name}.shape[{axis}]"
            remedy = f"guard it: `if 0 <= k < {bound}:`, k being that index; or loop over fewer elements"
            where = (here.kernel.path, *place)
            # If a loop's bound is too large, several indices of one iteration are out of bounds: one cause.
            cause = self._causes.setdefault(here.place, where) if here.place.iteration else where
            return Finding("TS604", "error", *where, what, remedy, None if cause == where else cause)

        self._log.note("TS604", "error", here.kernel.path, line, f"{array} {side}", words)

    def on_division_by_zero(self, operator: str, left: int, line: int) -> None:
        """Report a division of an integer by zero (TS607)."""
        sign = {"raw_div": "/", "raw_mod": "%"}.get(operator, operator)
        words = f"{left} {sign} 0{self._here.inside(line)}: an integer divided by zero "
        words += "crashes the process, or gives any number"
        self._note("TS607", "error", line, operator, words, "guard the divisor: `if d != 0:`, or `max(d, 1)`")

    def on_result(self, operator: str, kind: str, operands: tuple[Number, ...], result: Number, line: int) -> None:
        """Check the result of an operation: report overflows, casts that lose bits, and numbers that are not finite."""
        self.line = line
        if types.is_float(Type(kind)):
            self._origins.on_result(operator, operands, result, line)
        elif operator == "cast":
            if loses_bits(kind, operands[0]):
                self._report_cast(kind, operands, result, line)
            elif kind != "u1" and isinstance(operands[0], torch.Tensor) and operands[0].item() % 1:
                self._report_truncation(kind, operands[0].item(), result, line)
        else:
            exact = overflow(operator, kind, operands)
            if exact is not None:
                self._report_overflow(operator, kind, operands, exact, result, line)

    def _report_cast(self, kind: str, operands: tuple[Number, ...], result: Number, line: int) -> None:
        value = operands[0]
        least, greatest = limits(kind)
        if isinstance(value, int):
            words = f"{value} is cast to {kind}{self._here.inside(line)}, which drops bits: it becomes {result}"
            self._note("TS605", self._severity(kind, line), line, "cast", words, "use a wider integer")
            return
        words = f"{value.item():g} is cast to {kind}{self._here.inside(line)}, which holds {least} to {greatest}: "
        words += "what comes out is undefined, and differs between machines"
        self._note("TS605", "error", line, "cast", words, "clamp it before the cast, or use a wider integer")

    def _report_truncation(self, kind: str, value: float, result: Number, line: int) -> None:
        """Report a fraction that an assignment cuts off (TS301), unless the source has an explicit cast."""
        path = self._here.kernel.path
        cut = self._cuts.at(path, line)
        if cut is not None:
            words = (
                f"`{cut.target}` holds integers, {kind}: {value:g} is cut to {result}{self._here.inside(line)}, and "
            )
            words += "no gradient goes through it"
            remedy = "begin it with a float, `0.0`, or make it an array of floats; or say so: `int(...)`"
            finding = Finding("TS301", "error", path, cut.line, cut.column, words, remedy)
            self._log.note("TS301", "error", path, line, cut.target, lambda: finding)

    def _report_overflow(
        self, operator: str, kind: str, operands: tuple[Number, ...], exact: int, result: Number, line: int
    ) -> None:
        severity = self._severity(kind, line)
        value = str(exact) if abs(exact) < 10**24 else "more"
        words = (
            f"{format_operation(operator, operands)} is {value}{self._here.inside(line)}, which {kind} does not hold: "
        )
        words += f"it wraps around to {result}" + (", as in a hash" if severity == "info" else "")
        remedy = "" if severity == "info" else "use i64, or cast the operands to a float first"
        self._note("TS605", severity, line, operator, words, remedy)

    def _severity(self, kind: str, line: int) -> Severity:
        """Return the severity of an overflow: a hint if the type is unsigned or the line is part of a hash, else an
        error.
        """
        return "info" if is_unsigned(kind) or line in self._hashing else "error"

    def _note(self, rule: str, severity: Severity, line: int, operator: str, words: str, remedy: str) -> None:
        path = self._here.kernel.path

        def finding() -> Finding:
            return Finding(rule, severity, path, *self._columns.operation(path, line, operator), words, remedy)

        self._log.note(rule, severity, path, line, operator, finding)
