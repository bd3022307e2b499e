"""The lock that is held while anything is parsed, lowered, generated or compiled.

While the lock is held, handlers of signals (Ctrl-C among them) are delayed. An exception that a handler raises in the
middle of a compilation would be taken for a mistake in the kernel, and would leave an op half made. The lock also
raises Python's recursion limit, since passes and engines walk expressions recursively.
Meanwhile Python's garbage collector is paused: a kernel's trees have no cycles, and because of them the collector would
go through all objects of the process again and again, which took a quarter of the time.
"""

from __future__ import annotations

import functools
import gc
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
"""Python's recursion limit while the lock is held.

An expression of 500 nested operations takes up to 8 calls a level. Before Python 3.11 a call takes some hundred bytes
of the thread's stack, which usually has 8 MB.
"""
LEAST_ROOM = 4000
"""Nested calls that must be left for a compilation. There can be fewer only if the user raised the recursion limit."""


class _DelayedSignals:
    """Signals that arrived while the main thread held the lock, and the handlers to call for them afterwards."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._pending: list[int] = []

    def begin(self) -> None:
        """Replace all signal handlers by one that only records the signal.

        If an original handler raises meanwhile, restore all of them and raise its exception.
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
        """Restore the signal handlers and call those of the recorded signals. Raise the exceptions that they raise."""
        raised = self._restore()
        if raised is not None:
            raise raised
        for number in self._pending:
            self._handlers[number](number, sys._getframe(1))

    def _restore(self) -> BaseException | None:
        """Restore the signal handlers. Return the exception that one of them raised meanwhile, or None."""
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
    """A reentrant lock. The main thread handles signals only after it has released the lock.

    A signal that arrives a second time meanwhile is handled at once: a user who presses Ctrl-C twice does not want to
    wait.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._depth_in_main = 0
        self._usual_recursion_limit = 0
        self._collects_usually = False
        self._signals = _DelayedSignals()

    def acquire(self) -> None:
        """Acquire the lock without delaying signals."""
        self._lock.acquire()

    def release(self) -> None:
        """Release the lock."""
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
            self._collects_usually = gc.isenabled()
            gc.disable()

    def __exit__(self, *_: object) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self._depth_in_main -= is_main
        self._depth -= 1
        if not self._depth:
            sys.setrecursionlimit(self._usual_recursion_limit)
            if self._collects_usually:
                gc.enable()
        self._lock.release()
        if is_main and not self._depth_in_main:
            self._signals.end()


_NUMBERS = tuple(signal.valid_signals())

COMPILING = CompilingLock()
"""Held while anything is parsed, lowered, generated or compiled: neither the engines nor `ast` are thread-safe.

A thread that makes a part shared by all calls of an op holds it too, and checks again, once it has the lock, whether
another thread made the part meanwhile. A call whose parts exist never takes the lock. Nothing that may wait for
another thread is done while it is held: no launch, and no backward pass.
"""


def one_at_a_time(function: Callable[Options, Made]) -> Callable[Options, Made]:
    """Decorate a function to hold the compilation lock while it runs, so that no other thread compiles or parses
    meanwhile.
    """

    @functools.wraps(function)
    def call_locked(*positional: Options.args, **named: Options.kwargs) -> Made:
        with COMPILING:
            return function(*positional, **named)

    return call_locked
