"""Expressions of the IR as Python functions from the locals to a number.

An expression is made into a function once, before anything runs. Of `Select`, "and" and "or"
only the side that is chosen is run: expressions have no side effects, so nobody can tell, and the
other side's derivative is 0 even where it is infinite or not a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch

from ..._errors import KernelError, refusal
from ..ir import nodes, types
from ._casts import Number, Precision, cast, same_bits, wrapping
from ._memory import Memory
from ._rules import (
    COMPARE,
    DIVISIONS,
    FLOAT_BINARY,
    FLOAT_UNARY,
    INTEGER_BINARY,
    RECTIFIERS,
    SINGULAR,
    integer_power,
    integer_unary,
    keep_zero_cotangents,
    shift,
)
from ._watch import Missing, Recorder, Watch, watch_results

Locals: TypeAlias = dict[str, Any]
_Rule = TypeVar("_Rule", bound=Callable[..., Any])
Run: TypeAlias = Callable[[Locals], Any]  # gives a Number; which of its two kinds is known from the expression's type


class NoRule(KernelError):
    """An operation that the interpreter has no rule for."""

    def __init__(self, operator: str, kind: str, line: int) -> None:
        super().__init__(refusal(f"The interpreter has no rule for `{operator}` on {kind}, in line {line}."))
        self.construct = f"`{operator}` on {kind}"
        self.line = line


@dataclass(frozen=True)
class Expressions:
    """What expressions are about: arrays, arguments, the line they stand on, and who is notified of what they do."""

    memories: Mapping[str, Memory]
    arguments: Mapping[tuple[str, tuple[int, ...]], Number]
    precision: Precision
    record: Recorder | None = None
    watch: Watch | None = None
    line: int = 0

    def on(self, line: int) -> Expressions:
        """The same for a statement on another line."""
        return replace(self, line=line)

    def run(self, expr: nodes.Expr) -> Run:
        """A function that gives the value of an expression."""
        match expr:
            case nodes.Const(value, kind):
                return _always(self._number(value, kind))
            case nodes.Local(name):
                return lambda held: held[name]
            case nodes.Argument(name, _, entry):
                return _always(self.arguments[name, entry])
            case nodes.Size(array, axis):
                return _always(self.memories[array].shape[axis])
            case nodes.Load():
                return self._load(expr)
            case nodes.Unary():
                return self._unary(expr)
            case nodes.Binary():
                return self._binary(expr)
            case nodes.Select(condition, then, otherwise, kind):
                return _choice(self.truth(condition), self.as_type(then, kind), self.as_type(otherwise, kind))
            case nodes.Cast(value, kind, keeps_bits):
                if not keeps_bits:
                    return self.as_type(value, kind)
                return _then(self.run(value), same_bits(value.type, kind, self.precision))

    def as_type(self, expr: nodes.Expr, kind: str) -> Run:
        """A function that gives the value of an expression, cast to a type."""
        change = cast(expr.type, kind, self.precision)
        run = self.run(expr)
        return run if change is None else _then(run, self._watch_results("cast", kind, change))

    def truth(self, expr: nodes.Expr) -> Run:
        """A function that tells whether an expression is not zero."""
        return _then(self.run(expr), torch.Tensor.item) if types.is_float(expr.type) else self.run(expr)

    def place(
        self, array: str, index: tuple[nodes.Expr, ...], entry: tuple[int, ...], *, is_read: bool = False
    ) -> Callable[[Locals], int]:
        """A function that gives the position of an element's entry in its array's cells, or refuses the index."""
        memory = self.memories[array]
        runs = [self.as_type(one, "i64") for one in index]
        starts = memory.array.offset or (0,) * len(memory.shape)
        sizes, refuse = memory.shape, self._refusal_of_index(memory, is_read=is_read)
        offset, stride = memory.offset(entry), 1
        for size in memory.array.element:
            stride *= size

        def position(held: Locals) -> int:
            flat = 0
            for run, size, start in zip(runs, sizes, starts, strict=True):
                at = run(held) - start
                if not 0 <= at < size:
                    raise refuse(tuple([one(held) for one in runs]))
                flat = flat * size + at
            return flat * stride + offset

        return position

    def _refusal_of_index(self, memory: Memory, *, is_read: bool) -> Callable[[tuple[int, ...]], Exception]:
        """What is raised where an index is not there."""
        watch, name, line = self.watch, memory.array.name, self.line
        if watch is None:
            return lambda index: _outside(memory, index, line)

        def missing(index: tuple[int, ...]) -> Missing:
            watch.on_index_out_of_range(name, index, line, is_read=is_read)
            return Missing()

        return missing

    def _watch_results(self, operator: str, kind: str, rule: _Rule) -> _Rule:
        """An operation that tells the watch, if there is one, of its result.

        A watch looks for what an engine's reverse mode makes too, so it sees 0 times infinity.
        """
        if self.watch is None:
            return keep_zero_cotangents(rule) if operator in SINGULAR and types.is_float(kind) else rule  # type: ignore[arg-type, return-value]
        return watch_results(self.watch, operator, kind, self.line, rule)  # type: ignore[return-value]

    def _number(self, value: float, kind: str) -> Number:
        if types.is_float(kind):
            return torch.scalar_tensor(value, dtype=self.precision.dtype(kind))
        return wrapping(kind)(int(value))

    def _load(self, load: nodes.Load) -> Run:
        cells = self.memories[load.array].cells
        position = self.place(load.array, load.index, load.entry, is_read=True)
        if self.record is None:
            return self._or_zero(lambda held: cells[position(held)], load.type)
        add, array, line = self.record.add, load.array, self.line

        def load_and_record(held: Locals) -> Number:
            at = position(held)
            add("read", array, at, line)
            return cells[at]

        return self._or_zero(load_and_record, load.type)

    def _or_zero(self, load: Run, kind: str) -> Run:
        """A load that, with a watch, gives 0 for an index out of range."""
        if self.watch is None:
            return load
        zero = self._number(0, kind)

        def tolerant(held: Locals) -> Number:
            try:
                return load(held)
            except Missing:
                return zero

        return tolerant

    def _unary(self, expr: nodes.Unary) -> Run:
        if expr.operator == "not":
            return _then(self.truth(expr.value), lambda value: int(not value))
        name, kind = expr.operator, expr.type
        if name == "ffs":  # of 64 bits too it is an i32
            return _then(self.run(expr.value), self._require_rule(integer_unary(name, expr.value.type), name, kind))
        rule = self._require_rule(
            FLOAT_UNARY.get(name) if types.is_float(kind) else integer_unary(name, kind), name, kind
        )
        return _then(self.as_type(expr.value, kind), self._watch_results(name, kind, rule))

    def _binary(self, expr: nodes.Binary) -> Run:
        name, kind = expr.operator, expr.type
        if name in ("and", "or"):
            return _junction(name, self.truth(expr.left), self.truth(expr.right))
        if name in COMPARE:
            return self._comparison(expr)
        if name in ("<<", ">>", ">>>"):
            return _both(
                self.as_type(expr.left, kind), self.run(expr.right), self._watch_results(name, kind, shift(name, kind))
            )
        if name in RECTIFIERS and types.is_float(kind) and (_is_zero(expr.left) or _is_zero(expr.right)):
            other = expr.left if _is_zero(expr.right) else expr.right
            return _then(self.as_type(other, kind), self._watch_results(name, kind, RECTIFIERS[name]))
        left = self.as_type(expr.left, kind)
        if name == "pow" and not types.is_float(
            expr.right.type
        ):  # torch's own rule for whole exponents, as the engine's
            power = torch.pow if types.is_float(kind) else integer_power(kind)
            return _both(left, self.run(expr.right), self._watch_results(name, kind, power))
        return _both(left, self.as_type(expr.right, kind), self.rule(name, kind))

    def rule(self, name: str, kind: str) -> Callable[..., Any]:
        """What an arithmetic operation makes of two numbers of a type."""
        if types.is_float(kind):
            return self._watch_results(name, kind, self._require_rule(FLOAT_BINARY.get(name), name, kind))
        rule = self._require_rule(INTEGER_BINARY.get(name), name, kind)
        wrap, line, watch = wrapping(kind), self.line, self.watch

        def evaluate(left: int, right: int) -> int:
            if right == 0 and name in DIVISIONS:
                if watch is None:
                    raise _by_zero(name, left, line)
                watch.on_division_by_zero(name, left, line)
                return 0
            return wrap(rule(left, right))

        return self._watch_results(name, kind, evaluate)

    def _comparison(self, expr: nodes.Binary) -> Run:
        kind = types.promote(expr.left.type, expr.right.type)
        left, right, compare = self.as_type(expr.left, kind), self.as_type(expr.right, kind), COMPARE[expr.operator]
        if types.is_float(kind):
            return lambda held: int(compare(left(held).item(), right(held).item()))
        return lambda held: int(compare(left(held), right(held)))

    def _require_rule(self, rule: _Rule | None, name: str, kind: str) -> _Rule:
        if rule is None:
            raise NoRule(name, kind, self.line)
        return rule


def _always(value: Number) -> Run:
    return lambda _: value


def _then(run: Run, change: Callable[[Any], Any]) -> Run:
    return lambda held: change(run(held))


def _both(left: Run, right: Run, rule: Callable[[Any, Any], Any]) -> Run:
    return lambda held: rule(left(held), right(held))


def _choice(condition: Run, then: Run, otherwise: Run) -> Run:
    return lambda held: then(held) if condition(held) else otherwise(held)


def _is_zero(expr: nodes.Expr) -> bool:
    return isinstance(expr, nodes.Const) and expr.value == 0


def _junction(name: str, left: Run, right: Run) -> Run:
    if name == "and":
        return lambda held: int(bool(left(held) and right(held)))
    return lambda held: int(bool(left(held) or right(held)))


def _outside(memory: Memory, index: tuple[int, ...], line: int) -> KernelError:
    name = memory.array.label or memory.array.name
    return KernelError(
        refusal(
            f"Line {line} uses an element of `{name}` that is not there.",
            [("index", str(index)), ("shape", str(memory.shape))],
            "An engine reads or overwrites other memory there: guard the index.",
        )
    )


def _by_zero(name: str, left: int, line: int) -> KernelError:
    return KernelError(
        refusal(
            f"Line {line} divides an integer by zero.",
            [("operation", f"{left} {name} 0")],
            "The engine crashes, or the result is arbitrary: guard the divisor.",
        )
    )
