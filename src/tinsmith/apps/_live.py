"""Live: the exchange between a training and the page that shows and controls it.

Everything that touches the model happens on the training's thread, between two steps. The server's threads only
read what was published last and queue requests. An application's subclass defines what is shown.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ._interrupt import Stop
from ._loop import Outcome
from ._page_server import Wish, serving
from ._progress import Watch

_LEAST_PAUSE = 0.25  # seconds between two pictures
_SHARE = 4  # pictures take at most 1 part of time for this many parts of training
_TICK = 0.1  # seconds between checks for requests and Ctrl-C while nothing runs
_QUIET = 1.5  # seconds: a page without requests for this long has seen the end, or is closed
_MOST_WAITED = 5.0  # seconds to wait for pages that have not seen the end

Reached = TypeVar("Reached", bound=Outcome)


class Live(ABC, Generic[Reached]):
    """A run on a page. `url` is the page's address; `say` prints to the terminal.

    The training's thread calls `begin`, what `watching` gives after each step, and `finish`; the server's threads
    call `describe`, `get_picture` and `wish`.
    """

    def __init__(self, say: Callable[[str], object] = lambda words: None) -> None:
        self.url = ""
        self._say = say
        self._stop = Stop()
        self._changed = threading.Condition()
        self._facts: dict[str, Any] = {"version": 0, "status": "starting"}
        self._pictures: dict[str, bytes] = {}
        self._is_paused = False
        self._is_unwritten = True
        self._last_request = -_QUIET
        self._next = 0.0

    # The server's threads ------------------------------------------------------------------
    def describe(self) -> dict[str, Any]:
        """The facts about the run: numbers and texts."""
        with self._changed:
            self._last_request = time.monotonic()
            return dict(self._facts)

    def get_picture(self, name: str) -> bytes | None:
        """The last published picture of this name; None if there is none."""
        with self._changed:
            self._last_request = time.monotonic()
            return self._pictures.get(name)

    def wish(self, wish: Wish) -> str:
        """Accept a request of the page; returns what is wrong with it, or ""."""
        with self._changed:
            trouble = self.take_wish(wish)
            self._changed.notify_all()
        return trouble

    def take_wish(self, wish: Wish) -> str:
        """Accept a request while the lock is held; returns what is wrong with it, or ""."""
        if wish.name == "stop":
            self._stop.is_requested = True
        elif wish.name in ("pause", "resume"):
            self._is_paused = wish.name == "pause"
        else:
            return f"this run knows no wish {wish.name!r}"
        return ""

    # The training's thread -----------------------------------------------------------------
    def start(self, stop: Stop, folder: Path, **facts: Any) -> None:
        """Start; `stop` requests the run to stop, `folder` is for its files."""
        # The page may have requested a stop before the start.
        stop.is_requested |= self._stop.is_requested
        self._stop = stop
        self.tell(**facts, folder=str(folder.resolve()))

    def watching(self, watch: Watch | None) -> Watch:
        """A watch that also calls this one, and then carries out the page's requests."""

        def between(step: int, steps: int, quality: float) -> None:
            if watch is not None:
                watch(step, steps, quality)
            self.grant_wishes("learning")
            if self._is_paused:
                self.publish("paused")
                self._wait_while("paused", lambda: self._is_paused)
            if time.monotonic() >= self._next:
                self.publish("learning")

        return between

    def finish(self, write: Callable[[], Reached]) -> Reached:
        """Write the results, keep the page until a stop is requested, and show how the run ended.

        While the page stays, its requests are carried out; if they changed anything, the results are written again.
        """
        self.publish("writing")
        reached = self._write(write)
        if not self._stop.is_requested:
            self._say(f"The files are in {self._facts['folder']}. The page stays until its button or Ctrl-C ends it.")
            self.tell(status="done")
            self._wait_while("done", lambda: True)
        if self._is_unwritten:
            self.tell(status="writing")
            reached = self._write(write)
        self.tell(status="ended", interrupted=reached.interrupted)
        self._wait_for_pages()
        return reached

    def publish(self, status: str) -> None:
        """Publish pictures and numbers of the current state of the model."""
        start = time.monotonic()
        pictures, facts = self.look()
        with self._changed:
            self._pictures |= pictures
        self.tell(version=self._facts["version"] + 1, status=status, **facts)
        # The first duration does not predict the next: it includes the compilation of kernels.
        took = 0 if self._facts["version"] == 1 else time.monotonic() - start
        self._next = time.monotonic() + max(_LEAST_PAUSE, _SHARE * took)

    @abstractmethod
    def look(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Pictures of the current state, by name, and facts for the page."""

    def grant_wishes(self, status: str) -> None:
        """Carry out the page's requests other than pausing and stopping."""

    def has_wishes(self) -> bool:
        """Whether there are such requests."""
        return False

    def tell(self, **values: Any) -> None:
        """Publish facts to the page."""
        with self._changed:
            self._facts |= values

    def _write(self, write: Callable[[], Reached]) -> Reached:
        reached = write()
        self._is_unwritten = False
        self.tell(is_unwritten=False)
        return reached

    def _wait_for_pages(self) -> None:
        """Wait until pages have seen the end: a page that has seen it sends no more requests."""
        give_up = time.monotonic() + _MOST_WAITED
        while time.monotonic() < min(self._last_request + _QUIET, give_up):
            time.sleep(_TICK)

    def _wait_while(self, status: str, wanted: Callable[[], bool]) -> None:
        while wanted() and not self._stop.is_requested:
            self.grant_wishes(status)
            with self._changed:
                if not self.has_wishes():
                    self._changed.wait(_TICK)


AnyLive = TypeVar("AnyLive", bound=Live[Any])


@contextmanager
def serve_live(live: AnyLive, page: Path, port: int) -> Iterator[AnyLive]:
    """Within, the page shows a run. Raises InputError: the port is taken."""
    with serving(live, page, port) as live.url:
        yield live
