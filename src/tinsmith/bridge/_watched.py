"""Calls of ops that somebody looks at, to find a mistake."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from ._op import Op


@contextmanager
def watch_calls(look: Callable[..., Any]) -> Generator[None]:
    """Within, `look(op, run, arguments, named)` stands for every call of an op; its `run()` runs the call.

    Calls are not slower where nobody looks.
    """
    plain = Op.__call__

    def looked_at(self: Op[Any], *arguments: Any, **named: Any) -> Any:
        return look(self, lambda: plain(self, *arguments, **named), arguments, named)

    setattr(Op, "__call__", looked_at)  # noqa: B010  # an assignment to a method is an error, to pyright
    try:
        yield
    finally:
        setattr(Op, "__call__", plain)  # noqa: B010
