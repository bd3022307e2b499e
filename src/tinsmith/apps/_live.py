"""Live: a run that is watched and steered from a page. This is what training and page tell each other.

Everything that touches the model happens on the training's thread, between two steps. The server's threads only
read what was published last and leave wishes behind. What is shown, and how, an application's subclass says.
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
_SHARE = 4  # of the time: making pictures takes one part in so many and one
_TICK = 0.1  # seconds until a wish, or Ctrl-C, is noticed while nothing runs
_QUIET = 1.5  # seconds: a page that has asked for nothing so long has seen the end, or is gone
_MOST_WAITED = 5.0  # seconds, for pages that have not seen the end

Reached = TypeVar("Reached", bound=Outcome)


class Live(ABC, Generic[Reached]):
    """A run on a page. `url` is where the page is; `say` tells the terminal when something is to be done there.

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
        """What is known of the run: numbers and texts."""
        with self._changed:
            self._last_request = time.monotonic()
            return dict(self._facts)

    def get_picture(self, name: str) -> bytes | None:
        """A picture as published last; None where there is none of that name."""
        with self._changed:
            self._last_request = time.monotonic()
            return self._pictures.get(name)

    def wish(self, wish: Wish) -> str:
        """Take a wish of the page's; what is wrong with it, or ""."""
        with self._changed:
            trouble = self.take_wish(wish)
            self._changed.notify_all()
        return trouble

    def take_wish(self, wish: Wish) -> str:
        """Take a wish while the lock is held; what is wrong with it, or ""."""
        if wish.name == "stop":
            self._stop.is_requested = True
        elif wish.name in ("pause", "resume"):
            self._is_paused = wish.name == "pause"
        else:
            return f"this run knows no wish {wish.name!r}"
        return ""

    # The training's thread -----------------------------------------------------------------
    def start(self, stop: Stop, folder: Path, **facts: Any) -> None:
        """Begin; `stop` is what asks the run to stop, `folder` where its files will be."""
        stop.is_requested |= self._stop.is_requested  # the page was quicker
        self._stop = stop
        self.tell(**facts, folder=str(folder.resolve()))

    def watching(self, watch: Watch | None) -> Watch:
        """A watch that calls this one too, and then does what the page wants."""

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
        """Have the results written, keep the page until asked to stop, and let it say how it ended.

        While the page stays its wishes are granted; if that changed anything, the results are written once more.
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
        """Publish pictures of what the model has learned by now, and numbers to go with them."""
        start = time.monotonic()
        pictures, facts = self.look()
        with self._changed:
            self._pictures |= pictures
        self.tell(version=self._facts["version"] + 1, status=status, **facts)
        # The first time says nothing of how long the next takes: kernels were compiled in it.
        took = 0 if self._facts["version"] == 1 else time.monotonic() - start
        self._next = time.monotonic() + max(_LEAST_PAUSE, _SHARE * took)

    @abstractmethod
    def look(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Pictures of the run as it is, by name, and facts for the page."""

    def grant_wishes(self, status: str) -> None:
        """Do what the page wants besides pausing and stopping."""

    def has_wishes(self) -> bool:
        """Whether there is such a thing left to do."""
        return False

    def tell(self, **values: Any) -> None:
        """Let the page know."""
        with self._changed:
            self._facts |= values

    def _write(self, write: Callable[[], Reached]) -> Reached:
        reached = write()
        self._is_unwritten = False
        self.tell(is_unwritten=False)
        return reached

    def _wait_for_pages(self) -> None:
        """Let pages see the end: one that has asks no more."""
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
