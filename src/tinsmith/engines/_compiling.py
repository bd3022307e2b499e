"""The lock around everything that is parsed, lowered, generated or compiled.

It also delays the handlers of signals, Ctrl-C among them. An exception that a handler raises in the middle would be
taken for one of the engine's, which reports whatever is raised in a kernel as a mistake there; and it would leave an op
with some of its parts. And it raises Python's recursion limit: passes and engines go through an expression recursively.
"""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

Made = TypeVar("Made")
Options = ParamSpec("Options")
Handler = Callable[[int, FrameType | None], Any]


_RECURSION_LIMIT = 5000
"""An expression of 500 operations inside each other takes up to 8 calls a level. Before Python 3.11 a call takes some
hundred bytes of the thread's stack, which usually has 8 MB."""
LEAST_ROOM = 4000
"""Calls that may come below one that compiles. Only where the user raised the limit may there be fewer."""


class _DelayedSignals:
    """Signals that came while the main thread held the lock, and the handlers that they are for."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._pending: list[int] = []

    def begin(self) -> None:
        """Replace all handlers of signals by one that records the signal.

        If an original handler raises meanwhile, put all of them back and raise its exception.
        """
        try:
            for number in _NUMBERS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        except BaseException:
            self._restore()
            raise

    def end(self) -> None:
        """Handle the signals that came, once all handlers are back. Raises what one of these raises."""
        raised = self._restore()
        if raised is not None:
            raise raised
        for number in self._pending:
            self._handlers[number](number, sys._getframe(1))

    def _restore(self) -> BaseException | None:
        """Put handlers back; return what one of them raised meanwhile."""
        raised: BaseException | None = None
        for number, handler in self._handlers.items():
            for _attempt in range(2):
                try:
                    if signal.getsignal(number) == self._note:
                        signal.signal(number, handler)
                    break
                except BaseException as error:  # noqa: BLE001  # raised when all handlers are back
                    raised = error
        return raised

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._pending:
            self._handlers[number](number, frame)
        else:
            self._pending.append(number)


class CompilingLock:
    """A reentrant lock. The main thread handles no signal while it holds the lock; they are handled after the release.

    A signal that comes a second time meanwhile is handled at once: whoever presses Ctrl-C twice does not want to wait.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._depth_in_main = 0
        self._usual_recursion_limit = 0
        self._signals = _DelayedSignals()

    def acquire(self) -> None:
        """Take the lock, without delaying signals."""
        self._lock.acquire()

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> None:
        # Signals are delayed before the lock is taken, and come after it was given back: a handler that raises in
        # between would leave it taken.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and not self._depth_in_main:
            signals = _DelayedSignals()
            signals.begin()
            self._signals = signals
        try:
            self._lock.acquire()
        except BaseException:
            if is_main and not self._depth_in_main:
                self._signals.end()
            raise
        self._depth_in_main += is_main
        self._depth += 1
        if self._depth == 1:
            self._usual_recursion_limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(self._usual_recursion_limit, _RECURSION_LIMIT))

    def __exit__(self, *_: object) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self._depth_in_main -= is_main
        self._depth -= 1
        if not self._depth:
            sys.setrecursionlimit(self._usual_recursion_limit)
        self._lock.release()
        if is_main and not self._depth_in_main:
            self._signals.end()


_NUMBERS = tuple(signal.valid_signals())

COMPILING = CompilingLock()
"""Held while anything is parsed, lowered, generated or compiled: neither the engines nor `ast` do two at a time.

Who makes a part of an op that all its calls share holds it too, and looks again whether another thread was faster. A
call whose parts are made never takes it. Nothing that may wait for another thread is done meanwhile: no launch, and
no backward pass."""


def one_at_a_time(function: Callable[Options, Made]) -> Callable[Options, Made]:
    """A function that one thread runs at a time, and no other compiles or parses meanwhile."""

    @functools.wraps(function)
    def call_locked(*positional: Options.args, **named: Options.kwargs) -> Made:
        with COMPILING:
            return function(*positional, **named)

    return call_locked
