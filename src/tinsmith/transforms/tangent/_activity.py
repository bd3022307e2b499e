"""Activity: which locals and arrays depend on something that has a tangent.

Whatever the order of statements: what depends on it anywhere has a companion everywhere, which is 0 where
it does not. `@` stands before an array's name, `$` before an argument's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...source.ir import nodes, types, walk
from .._slopes import is_flat


class Activity:
    """What has a tangent in a kernel.

    Args:
        kernel: the kernel.
        given: arrays and arguments that have one from the start.
        inert: arrays that get none.
    """

    def __init__(self, kernel: nodes.Kernel, given: Iterable[str], inert: Iterable[str] = ()) -> None:
        self._active = {f"@{name}" if name in kernel.arrays else f"${name}" for name in given}
        self._known: dict[nodes.Expr, bool] = {}
        edges = [edge for statement in walk.statements(kernel.body) for edge in _edges(statement, kernel)]
        shut = {f"@{name}" for name in inert}
        self._spread([edge for edge in edges if edge[1] not in shut])

    def _spread(self, edges: list[tuple[str, str]]) -> None:
        after: dict[str, list[str]] = {}
        for source, target in edges:
            after.setdefault(source, []).append(target)
        waiting = list(self._active)
        while waiting:
            new = [target for target in after.get(waiting.pop(), ()) if target not in self._active]
            self._active.update(new)
            waiting += new

    def has(self, expr: nodes.Expr) -> bool:
        """Whether an expression has a tangent."""
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = any(source in self._active for source in _sources(expr))
        return found

    def has_local(self, name: str) -> bool:
        """Whether a local has one."""
        return name in self._active

    def has_array(self, name: str) -> bool:
        """Whether an array has one."""
        return f"@{name}" in self._active

    def has_argument(self, name: str) -> bool:
        """Whether an argument has one."""
        return f"${name}" in self._active


def _sources(expr: nodes.Expr) -> Iterator[str]:
    """What the derivative of an expression depends on."""
    if not types.is_float(expr.type):
        return
    match expr:
        case nodes.Local():
            yield expr.name
        case nodes.Load():
            yield f"@{expr.array}"
        case nodes.Argument():
            yield f"${expr.name}"
        case nodes.Select():
            yield from _sources(expr.then)
            yield from _sources(expr.otherwise)
        case nodes.Unary() | nodes.Binary() if is_flat(expr.operator):
            return
        case _:
            for operand in walk.operands(expr):
                yield from _sources(operand)


def _edges(statement: nodes.Stmt, kernel: nodes.Kernel) -> Iterator[tuple[str, str]]:
    """From what to what tangents go in a statement."""
    match statement:
        case nodes.Assign() if types.is_float(kernel.locals[statement.name]):
            yield from ((source, statement.name) for source in _sources(statement.value))
        case nodes.Store() | nodes.Atomic() if types.is_float(kernel.arrays[statement.array].type):
            yield from ((source, f"@{statement.array}") for source in _sources(statement.value))
            if isinstance(statement, nodes.Atomic) and statement.result is not None:
                yield f"@{statement.array}", statement.result
        case _:
            return
