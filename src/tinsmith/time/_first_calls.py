"""First calls: values besides arguments that the ops and layers of a scan's first step depended on.

The backward pass runs steps again. If a Python value or a field that an op reads changed since, the gradient would
belong to another simulation. Values are compared where an op is called, since a step may write a field that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from ..calls import Note, watch_calls
from ..ops import Op


class FirstCalls:
    """What was noted when step 0 ran for the first time: for each op and layer, at its first call there."""

    def __init__(self) -> None:
        self._noted: dict[Any, Note | None] = {}

    def note(self) -> Any:
        """Within, step 0 runs for the first time."""

        def visit(caller: Any, note: Callable[[], Note | None]) -> None:
            if caller not in self._noted:
                self._noted[caller] = note()

        return _visiting(visit)

    def compare(self) -> Any:
        """Within, step 0 runs again. Raises GradientError where a call depends on other values by now."""
        left = dict(self._noted)

        def visit(caller: Any, _: Callable[[], Note | None]) -> None:
            noted = left.pop(caller, None)
            if noted is not None:
                noted.check()

        return _visiting(visit)


@contextmanager
def _visiting(visit: Callable[[Any, Callable[[], Note | None]], None]) -> Generator[None]:
    """Within, `visit(caller, note)` is called before each call of an op or of a layer on fields."""

    def look(op: Op[Any], run: Callable[[], Any], arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        visit(op, lambda: op.note_values(arguments, named))
        return run()

    with watch_calls(look, visit):
        yield
