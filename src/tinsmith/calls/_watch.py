"""Watched calls: other code is called instead of an op, to find a mistake or to compare a call with its repetition.

Each thread has its own watches, which `Op.__call__` asks for. Calls that a compiler traces are not seen; calls from the
graph that it makes are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

Look = Callable[..., Any]
"""Called instead of an op: `look(op, run, arguments, named)` returns the results; `run()` runs the call."""


class Note(Protocol):
    """The values that a call depends on besides its arguments."""

    def check(self) -> None:
        """Raise GradientError if the values have changed since they were noted."""


class Watch(NamedTuple):
    """What watches the calls of a thread.

    Attributes:
        thread: the thread.
        look: is called instead of each op.
        look_at_others: is called before each call of a layer on fields, and of an op in a compiled graph.
    """

    thread: int
    look: Look
    look_at_others: Callable[[Any, Callable[[], Note]], None] | None


WATCHES: list[Watch] = []
"""The watches of all threads, the latest last. It is nearly always empty, so ops check that first."""


@contextmanager
def watch_calls(look: Look, look_at_others: Callable[[Any, Callable[[], Note]], None] | None = None) -> Generator[None]:
    """Enter a context in which `look(op, run, arguments, named)` is called instead of each op in this thread.

    `run()` runs the call. `look_at_others(caller, note)` is called before each call of a layer on fields, and of an op
    in a compiled graph; `note()` returns what that call depends on.
    """
    watch = Watch(threading.get_ident(), look, look_at_others)
    WATCHES.append(watch)
    try:
        yield
    finally:
        WATCHES.remove(watch)


def current_watch() -> Watch | None:
    """Return the latest watch of this thread, None if it has none."""
    thread = threading.get_ident()
    return next((one for one in reversed(WATCHES) if one.thread == thread), None) if WATCHES else None


def call_watched(watch: Watch, op: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Let a watch call an op. Calls within `run()` are not watched again."""

    def run() -> Any:
        WATCHES.remove(watch)
        try:
            return op(*arguments, **named)
        finally:
            WATCHES.append(watch)

    return watch.look(op, run, arguments, named)


def show_call(caller: Any, note: Callable[[], Note]) -> None:
    """Show a call of a layer on fields, or of an op in a compiled graph, to this thread's watch, if it has one.

    `note()` returns what the call depends on besides its arguments.
    """
    watch = current_watch()
    if watch is not None and watch.look_at_others is not None:
        watch.look_at_others(caller, note)
