"""Activity: which locals and arrays depend on something that has a tangent.

Whatever the order of statements: what depends on it anywhere has a companion everywhere, which is 0 where
it does not. `@` stands before an array's name, `$` before an argument's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...source.ir import nodes, types, walk
from .._flow import Edge, reached, sources


class Activity:
    """What has a tangent in a kernel.

    Args:
        kernel: the kernel.
        given: arrays and arguments that have one from the start.
        inert: arrays that get none.
    """

    def __init__(self, kernel: nodes.Kernel, given: Iterable[str], inert: Iterable[str] = ()) -> None:
        first = {f"@{name}" if name in kernel.arrays else f"${name}" for name in given}
        self._known: dict[nodes.Expr, bool] = {}
        edges = [edge for statement in walk.statements(kernel.body) for edge in _edges(statement, kernel)]
        shut = {f"@{name}" for name, one in kernel.arrays.items() if name in inert or not one.is_differentiable}
        self._active = reached(first, [edge for edge in edges if edge[1] not in shut])

    def has(self, expr: nodes.Expr) -> bool:
        """Whether an expression has a tangent."""
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = any(source in self._active for source in sources(expr))
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


def _edges(statement: nodes.Stmt, kernel: nodes.Kernel) -> Iterator[Edge]:
    """From what to what tangents go in a statement."""
    match statement:
        case nodes.Assign() if types.is_float(kernel.locals[statement.name]):
            yield from ((source, statement.name) for source in sources(statement.value))
        case nodes.Store() | nodes.Atomic() if types.is_float(kernel.arrays[statement.array].type):
            yield from ((source, f"@{statement.array}") for source in sources(statement.value))
            if isinstance(statement, nodes.Atomic) and statement.result is not None:
                yield f"@{statement.array}", statement.result
        case _:
            return
