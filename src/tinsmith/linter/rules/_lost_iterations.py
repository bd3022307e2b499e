"""The rule about locals that an inner loop uses: engines add up one iteration's gradient alone.

Seen on Taichi 1.7.4 and Quadrants 1.3.3: what is computed once and used in a loop below becomes one value without
memory, whose adjoint each iteration begins again. A local that changes keeps memory, on Taichi already where it is
changed by itself (`r += 1`), on Quadrants only where a loop carries it. An element that is only loaded is loaded again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._lazy import lazy
from ...frontend import (
    Loop,
    Spot,
    dynamic,
    find_carried,
    find_saved_values,
    is_size,
    names_in,
    resolve_callee,
    root,
    runs_once,
    sub_expressions,
)
from .._finding import Finding
from .._subject import ENGINES, Subject
from .._types import types_of

_INTEGERS = frozenset({"int", "i32", "i64", "u32", "u64"})


def lost_iterations(subject: Subject) -> Iterator[Finding]:
    """TS411."""
    lost = _LoopLocals(subject)
    if not any(len(dynamic(spot.loops)) > lost.depth for spot in subject.spots):
        return
    seen: set[tuple[str, int]] = set()
    for place, spot in enumerate(subject.spots):
        for name in sorted(_flowing(spot, subject) & lost.candidates):
            loop = lost.loop_of(name, spot, place)
            engines = lost.engines_wrong_about(name)
            if loop is not None and engines and (name, id(loop)) not in seen:
                seen.add((name, id(loop)))
                who = " and ".join(map(str.capitalize, engines))
                words = f"uses `{name}`, which is computed before the loop of line {loop.lineno}: {who} "
                words += "count the gradient of only one of its iterations"
                remedy = f"{name} = ...  # inside that loop"
                yield subject.finding("TS411", "warning", spot.statement, words, remedy, engines)


class _LoopLocals:
    """What is known of the locals of one kernel or function."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.depth = 1 if subject.is_kernel else 0  # of a kernel the outermost loop is the one that threads share
        self.given: dict[str, list[tuple[int, Spot, ast.expr]]] = {}
        for place, spot in enumerate(subject.spots):
            for target, value in spot.assignments:
                self.given.setdefault(root(target), []).append((place, spot, value))

    @lazy
    def parameters(self) -> frozenset[str]:
        """Those of an engine function that are given by value."""
        arguments = () if self.subject.is_kernel else self.subject.tree.args.args
        return frozenset(one.arg for one in arguments if _is_by_value(one.annotation)) - {"self"}

    @lazy
    def active(self) -> frozenset[str]:
        """Locals that vary with what has a gradient."""
        if self.subject.is_kernel:
            return self.subject.needs.active
        varying = self.subject.floats | self.parameters | {one.arg for one in self.subject.tree.args.args}
        return find_saved_values(self.subject.source, self.subject.roles, varying, self.subject.engine).active

    @lazy
    def candidates(self) -> frozenset[str]:
        """Locals with a gradient that are computed, not only loaded, and parameters."""
        worked_out = {name for name in self.active & self.given.keys() if not self._is_loaded(name)}
        return frozenset(worked_out | self.parameters) - types_of(self.subject).integers

    def _is_loaded(self, name: str, *before: str) -> bool:
        """Whether a local only ever holds elements of arrays, or is memory. `before` are locals handed on to it."""
        values = [value for _, _, value in self.given[name]]
        if any(isinstance(value, ast.Call) and resolve_callee(value) == "SharedArray" for value in values):
            return True
        return name not in before and all(self._is_plain(value, name, *before) for value in values)

    def _is_plain(self, value: ast.expr, *before: str) -> bool:
        if isinstance(value, ast.Name) and value.id in self.active:
            return value.id in self.given and self._is_loaded(value.id, *before)
        is_element = isinstance(value, ast.Subscript | ast.Attribute) and root(value) in self.subject.arrays
        return is_element or not names_in(value) & (self.active | self.subject.floats | self.parameters)

    def _changes_itself(self, name: str) -> bool:
        return any(name in names_in(value) for _, _, value in self.given.get(name, ()))

    def loop_of(self, name: str, spot: Spot, place: int) -> Loop | None:
        """The loop around a use that the local has its value from outside of, if there is one."""
        loops = dynamic(spot.loops)
        around = [dynamic(other.loops) for _, other, _ in self.given.get(name, ())] or [()]
        common = max(_count_shared_loops(loops, other) for other in around)
        if max(common, self.depth) >= len(loops):
            return None
        loop = loops[max(common, self.depth)]
        is_later = any(other > place and not _holds(loop, at) for other, at, _ in self.given.get(name, ()))
        return None if is_later or runs_once(loop) else loop

    def engines_wrong_about(self, name: str) -> tuple[str, ...]:
        """The engines that lose a local's gradient; a local that a loop carries has memory in both."""
        loops = {loop for spot in self.subject.spots for loop in dynamic(spot.loops)[self.depth :]}
        if any(name in find_carried(loop) for loop in loops):
            return ()
        return ("quadrants",) if self._changes_itself(name) else ENGINES


def _flowing(spot: Spot, subject: Subject) -> frozenset[str]:
    """Names whose values a statement hands on: not those in an index, a condition, or a cast to integers."""
    one = spot.statement
    parts: list[ast.expr] = []
    if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign) and one.value is not None:
        parts = [one.value]
    elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
        parts = list(one.value.args)
    elif isinstance(one, ast.Return) and one.value is not None:
        parts = [one.value]
    return frozenset(name for part in parts for name in _handed_on(part, subject))


def _handed_on(node: ast.expr, subject: Subject) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Subscript() | ast.Attribute():
            if not is_size(node) and root(node):
                yield root(node)
            elif not root(node):
                yield from (name for child in sub_expressions(node) for name in _handed_on(child, subject))
        case ast.Compare() | ast.BoolOp():
            return
        case ast.IfExp(body=body, orelse=orelse):
            yield from _handed_on(body, subject)
            yield from _handed_on(orelse, subject)
        case ast.Call() if subject.resolve_builtin(node) in _INTEGERS:
            return
        case ast.Call(func=ast.Attribute(value=owner), args=arguments):
            yield from (name for child in (owner, *arguments) for name in _handed_on(child, subject))
        case ast.Call(args=arguments):
            yield from (name for child in arguments for name in _handed_on(child, subject))
        case _:
            yield from (name for child in sub_expressions(node) for name in _handed_on(child, subject))


def _count_shared_loops(left: tuple[Loop, ...], right: tuple[Loop, ...]) -> int:
    """How many loops two statements stand in together."""
    return sum(one is other for one, other in zip(left, right, strict=False))


def _holds(loop: Loop, spot: Spot) -> bool:
    return any(one is loop for one in spot.loops)


def _is_by_value(annotation: ast.expr | None) -> bool:
    """Whether a function gets a number: arrays and what it may change are annotated."""
    if annotation is None:
        return True
    text = ast.unparse(annotation)
    return not any(word in text for word in ("template", "ndarray", "int", "i32", "i64", "u32", "bool"))
