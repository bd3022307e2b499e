"""Watched calls of ops, to find a mistake or to compare a repeated call with the first one.

Watches are kept for each thread, and `Op.__call__` asks for them. Calls that a compiler traces are not
seen; those of the graph that it makes are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

Look = Callable[..., Any]
"""Stands for a call of an op: `look(op, run, arguments, named)`. Its `run()` runs the call."""


class Note(Protocol):
    """What a call depends on besides its arguments."""

    def check(self) -> None:
        """Raise GradientError where that is something else by now."""


class Watch(NamedTuple):
    """What looks at the calls of a thread: at those of ops, and at others, which say what they depend on."""

    thread: int
    look: Look
    look_at_others: Callable[[Any, Callable[[], Note]], None] | None


WATCHES: list[Watch] = []
"""The latest last. Empty but for moments, so an op asks for that first."""


@contextmanager
def watch_calls(look: Look, look_at_others: Callable[[Any, Callable[[], Note]], None] | None = None) -> Generator[None]:
    """Within, `look(op, run, arguments, named)` stands for every call of an op in this thread; `run()` runs the call.

    `look_at_others(caller, note)` is called before each call of a layer on fields, and of an op in a compiled graph;
    `note()` is what that call depends on.
    """
    watch = Watch(threading.get_ident(), look, look_at_others)
    WATCHES.append(watch)
    try:
        yield
    finally:
        WATCHES.remove(watch)


def current_watch() -> Watch | None:
    """What looks at the calls of this thread."""
    thread = threading.get_ident()
    return next((one for one in reversed(WATCHES) if one.thread == thread), None) if WATCHES else None


def call_watched(watch: Watch, op: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """A call, by what looks at it. Its `run` does not look again."""

    def run() -> Any:
        WATCHES.remove(watch)
        try:
            return op(*arguments, **named)
        finally:
            WATCHES.append(watch)

    return watch.look(op, run, arguments, named)


def show_call(caller: Any, note: Callable[[], Note]) -> None:
    """Show a call to what looks at this thread's calls: of a layer on fields, or of an op in a compiled graph."""
    watch = current_watch()
    if watch is not None and watch.look_at_others is not None:
        watch.look_at_others(caller, note)
