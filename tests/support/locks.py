"""Records in which order threads take the library's locks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tinsmith.engines import COMPILING
from tinsmith.engines._registry import _PYTHON, ENGINE_NAMES

ORDER = ("FIELDS_LOCK", "Python.lock", "COMPILING")
"""A thread that holds a lock takes only those right of it."""


class LockRecorder:
    """Notes, for each lock that a thread takes, which ones it holds already.

    Attributes:
        pairs: a lock that was held, and one that was taken meanwhile.
        taken: locks that were taken at all.
    """

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()
        self.taken: set[str] = set()
        self._held = threading.local()

    @property
    def held(self) -> list[str]:
        """The locks that this thread holds, in the order in which it took them."""
        if not hasattr(self._held, "names"):
            self._held.names = []
        return self._held.names

    def find_inversions(self) -> list[tuple[str, str]]:
        """Return the pairs that `ORDER` does not allow."""
        return sorted(pair for pair in self.pairs if ORDER.index(pair[0]) > ORDER.index(pair[1]))

    def note_taken(self, name: str) -> None:
        """Note that this thread takes a lock. One that it holds already, it need not wait for."""
        if name not in self.held:
            self.pairs |= {(before, name) for before in self.held}
        self.taken.add(name)
        self.held.append(name)

    def note_released(self, name: str) -> None:
        """Note that this thread gives a lock back, once."""
        held = self.held
        del held[len(held) - 1 - held[::-1].index(name)]


class RecordedLock:
    """A reentrant lock that tells a recorder what happens to it."""

    def __init__(self, name: str, lock: Any, recorder: LockRecorder) -> None:
        self._name, self._lock, self._recorder = name, lock, recorder

    def acquire(self) -> bool:
        # Before it is taken: two threads that deadlock have noted it.
        self._recorder.note_taken(self._name)
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()
        self._recorder.note_released(self._name)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def record_locks() -> Iterator[LockRecorder]:
    """Enter a context in which all locks of the library are recorded, in each module that has them."""
    recorder = LockRecorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(COMPILING, "_lock", RecordedLock("COMPILING", COMPILING._lock, recorder))
        for engine in (_PYTHON[name] for name in ENGINE_NAMES):
            patch.setattr(engine, "lock", RecordedLock("Python.lock", engine.lock, recorder))
        from tinsmith.layers._pool import FIELDS_LOCK

        recorded = RecordedLock("FIELDS_LOCK", FIELDS_LOCK, recorder)
        for name, module in [*sys.modules.items()]:
            if name.startswith("tinsmith.") and vars(module).get("FIELDS_LOCK") is FIELDS_LOCK:
                patch.setattr(module, "FIELDS_LOCK", recorded)
        yield recorder
