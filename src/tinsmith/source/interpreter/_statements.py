"""Statements of the IR as Python functions that change locals and memory.

Each gives None, or says that the innermost loop is left (`BREAK`) or goes on (`CONTINUE`). Parallel
loops run in order: no iteration may rely on another, so any order will do.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch

from ..ir import decompositions, nodes, operators, types
from ._casts import Number, bits, wrapping
from ._decompositions import evaluate_decomposition
from ._expressions import Expressions, Locals, Run
from ._memory import Memory, with_candidate
from ._watch import Missing, Watch, cost

BREAK: Final = "break"
CONTINUE: Final = "continue"
Step: TypeAlias = Callable[[Locals], "str | None"]


@dataclass(frozen=True)
class Statements:
    """What statements are about: expressions, the types of locals, and where random numbers come from."""

    expressions: Expressions
    types: Mapping[str, str]
    generator: random.Random

    def task(self, number: int, stmt: nodes.Stmt) -> Step:
        """A statement of the kernel's top level: the record, if there is one, tells its iterations apart."""
        record = self.expressions.record
        if record is None:
            return self.step(stmt)
        if not isinstance(stmt, nodes.For):
            return _in_order([lambda _: record.enter(number), self.step(stmt)])
        names = stmt.names
        return self._for(stmt, lambda held: record.enter(number, tuple(held[name] for name in names)))

    def step(self, stmt: nodes.Stmt) -> Step:
        """A function that runs a statement."""
        watch = self.expressions.watch
        return self._step(stmt) if watch is None else self._watch_step(self._step(stmt), stmt, watch)

    def _watch_step(self, step: Step, stmt: nodes.Stmt, watch: Watch) -> Step:
        """A statement whose operations are counted, and that leaves memory alone where its index is not there."""
        count, operations, line = watch.on_statement, cost(stmt), stmt.line
        result = stmt.result if isinstance(stmt, nodes.Atomic) else None
        zero = None if result is None else self.expressions.run(nodes.Const(0, self.types[result]))({})

        def count_and_run(held: Locals) -> str | None:
            count(operations, line)
            try:
                return step(held)
            except Missing:
                if result is not None:
                    held[result] = zero
                return None

        return count_and_run

    def _step(self, stmt: nodes.Stmt) -> Step:
        run = self.expressions.on(stmt.line)
        match stmt:
            case nodes.Assign(name, value):
                return _into(name, run.as_type(value, self.types[name]))
            case nodes.Draw(name, kind):
                return _into(name, self._draw(kind))
            case nodes.Decompose():
                return self._decompose(stmt, run)
            case nodes.Store():
                return self._store(stmt, run)
            case nodes.Atomic():
                return self._atomic(stmt, run)
            case nodes.If(condition, body, orelse):
                return _branch(run.truth(condition), self.block(body), self.block(orelse))
            case nodes.For():
                return self._for(stmt)
            case nodes.While(body):
                return _build_while(self.block(body), stmt.line, self.expressions.watch)
            case nodes.Break():
                return lambda _: BREAK
            case nodes.Continue():
                return lambda _: CONTINUE
            case nodes.Barrier() | nodes.LocalArray() | nodes.Loop():
                raise AssertionError(f"{stmt}: blocks were to be run in order, and strips and SSA form are not run")

    def block(self, body: Iterable[nodes.Stmt]) -> Step:
        """A function that runs statements in order."""
        return _in_order([self.step(stmt) for stmt in body])

    def _for(self, loop: nodes.For, first: Step | None = None) -> Step:
        run = self.expressions.on(loop.line)
        bounds = [(run.as_type(begin, "i32"), run.as_type(end, "i32")) for begin, end in loop.bounds]
        body = self.block(loop.body)
        return _build_for(loop.names, bounds, body if first is None else _in_order([first, body]))

    def _draw(self, kind: str) -> Run:
        if types.is_float(kind):
            dtype, uniform = self.expressions.precision.dtype(kind), self.generator.random
            return lambda _: torch.scalar_tensor(uniform(), dtype=dtype)
        wrap, width, integer = wrapping(kind), bits(kind), self.generator.getrandbits
        return lambda _: wrap(integer(width))

    def _decompose(self, one: nodes.Decompose, run: Expressions) -> Step:
        entries, side = [run.as_type(entry, one.type) for entry in one.matrix], decompositions.side_of(one)

        def assign(held: Locals) -> None:
            matrix = torch.stack([entry(held) for entry in entries]).reshape(side, side)
            held.update(zip(one.results, evaluate_decomposition(one, matrix), strict=True))

        return assign

    def _store(self, store: nodes.Store, run: Expressions) -> Step:
        memory = run.memories[store.array]
        position = run.place(store.array, store.index, store.entry)
        value = run.as_type(store.value, memory.array.type)
        note = _make_recorder(run, store)
        cells = memory.cells

        def run_store(held: Locals) -> None:
            new = value(held)  # an engine computes the value first, then the index; neither can change the other
            at = position(held)
            note(at, new)
            cells[at] = new

        return run_store

    def _atomic(self, atomic: nodes.Atomic, run: Expressions) -> Step:
        memory = run.memories[atomic.array]
        position = run.place(atomic.array, atomic.index, atomic.entry)
        value = run.as_type(atomic.value, memory.array.type)
        change = _change(atomic.operator, memory, run)
        note, cells, result = _make_recorder(run, atomic), memory.cells, atomic.result

        def update(held: Locals) -> None:
            new = value(held)
            at = position(held)
            note(at, new)
            old = cells[at]
            cells[at] = change(at, new)
            if result is not None:
                held[result] = old

        return update


def _change(operator: str, memory: Memory, run: Expressions) -> Callable[[int, Any], Number]:
    """What an atomic makes of the element at a position and a value."""
    if operator in ("min", "max") and types.is_float(memory.array.type):
        return lambda at, value: with_candidate(memory, at, operator, value)
    rule, cells = run.rule(operators.ATOMIC[operator], memory.array.type), memory.cells
    return lambda at, value: rule(cells[at], value)


def _make_recorder(run: Expressions, change: nodes.Store | nodes.Atomic) -> Callable[[int, Number], None]:
    if run.record is None:
        return lambda _, __: None
    add, line, array = run.record.add, run.line, change.array
    if isinstance(change, nodes.Store):
        return lambda at, value: add("write", array, at, line, "", value)
    operator = change.operator
    return lambda at, value: add("atomic", array, at, line, operator, value)


def _into(name: str, run: Run) -> Step:
    def assign(held: Locals) -> None:
        held[name] = run(held)

    return assign


def _in_order(steps: list[Step]) -> Step:
    if len(steps) == 1:
        return steps[0]

    def block(held: Locals) -> str | None:
        for step in steps:
            signal = step(held)
            if signal is not None:
                return signal
        return None

    return block


def _branch(condition: Run, body: Step, orelse: Step) -> Step:
    return lambda held: body(held) if condition(held) else orelse(held)


def _build_for(names: tuple[str, ...], bounds: list[tuple[Run, Run]], body: Step) -> Step:
    def loop(held: Locals) -> None:
        for indices in _indices([range(begin(held), end(held)) for begin, end in bounds]):
            held.update(zip(names, indices, strict=True))
            if body(held) == BREAK:
                return

    return loop


def _indices(ranges: list[range]) -> Iterable[tuple[int, ...]]:
    """Every combination, the last fastest; unlike `itertools.product` without a list of what may be billions."""
    if not ranges:
        return [()]
    return ((at, *rest) for at in ranges[0] for rest in _indices(ranges[1:]))


def _build_while(body: Step, line: int, watch: Watch | None) -> Step:
    def loop(held: Locals) -> None:
        while body(held) != BREAK:
            continue

    def run_watched(held: Locals) -> None:
        assert watch is not None
        for turn in itertools.count():
            watch.on_while_turn(line, turn)
            if body(held) == BREAK:
                return

    return loop if watch is None else run_watched
