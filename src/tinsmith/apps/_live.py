"""Live pages: the exchange between a training and the HTML page that shows and controls it.

The server's threads only read what was last published, and queue requests. An app's subclass defines what is shown.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ._page import Page
from ._page_server import Wish, serve_page
from ._training import AnyLearner, AnyOutcome

_LEAST_PAUSE = 0.25  # seconds between two pictures
_SHARE = 4  # pictures take at most 1 part of time for this many parts of training
_TICK = 0.1  # seconds between checks for requests and Ctrl-C while nothing runs
_QUIET = 1.5  # seconds: a page that sent no request for so long has seen the end, or is closed
_MOST_WAITED = 5.0  # seconds to wait for pages that have not seen the end


class Live(Page[AnyLearner, AnyOutcome]):
    """A training's page of our own: see `Page`. The server's threads call `describe`, `get_picture` and `wish`."""

    title, name = "a live page", "page"

    def __init__(self, say: Callable[[str], object] = lambda words: None) -> None:
        super().__init__(say)
        self._changed = threading.Condition()
        self._facts: dict[str, Any] = {"version": 0, "status": "starting"}
        self._pictures: dict[str, bytes] = {}
        self._last_request = -_QUIET
        self._next = 0.0

    # The server's threads ------------------------------------------------------------------
    def describe(self) -> dict[str, Any]:
        """Return the facts about the run that the page shows: numbers and texts."""
        with self._changed:
            self._last_request = time.monotonic()
            return dict(self._facts)

    def get_picture(self, name: str) -> bytes | None:
        """Return the last published picture with this name; None if there is none."""
        with self._changed:
            self._last_request = time.monotonic()
            return self._pictures.get(name)

    def wish(self, wish: Wish) -> str:
        """Accept a request of the page, to be carried out later. Return why it is invalid, or ""."""
        with self._changed:
            trouble = self.take_wish(wish)
            self._changed.notify_all()
        return trouble

    def take_wish(self, wish: Wish) -> str:
        """Accept a request while the caller holds the lock. Return why it is invalid, or ""."""
        if wish.name == "stop":
            self._stop.is_requested = True
        elif wish.name in ("pause", "resume"):
            self._is_paused = wish.name == "pause"
        else:
            return f"this page has no request {wish.name!r}"
        return ""

    # The training's thread -----------------------------------------------------------------
    @abstractmethod
    def describe_start(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Return the pictures and facts that do not change, for the page's start: PNG or GIF data by name, and values
        by name.
        """

    @abstractmethod
    def look(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Return the pictures and facts of the current state: PNG or GIF data by name, and values by name."""

    def open(self) -> None:
        pictures, facts = self.describe_start()
        self.publish(pictures, **facts, folder=str(self._folder))
        self.show("learning")

    def show(self, status: str) -> None:
        start = time.monotonic()
        pictures, facts = self.look()
        self.publish(pictures, version=self._facts["version"] + 1, status=status, **facts)
        # The first duration does not predict the next: it includes the compilation of kernels.
        took = 0 if self._facts["version"] == 1 else time.monotonic() - start
        self._next = time.monotonic() + max(_LEAST_PAUSE, _SHARE * took)

    def show_step(self) -> None:
        if time.monotonic() >= self._next:
            self.show("learning")

    def tell(self, status: str) -> None:
        self.publish(status=status)

    def publish(self, pictures: dict[str, bytes] | None = None, **facts: Any) -> None:
        """Replace pictures and facts that the page shows."""
        with self._changed:
            self._pictures |= pictures or {}
            self._facts |= facts

    def grant_wishes(self, status: str) -> None:
        pass

    def has_wishes(self) -> bool:
        """Return True if requests are waiting to be carried out."""
        return False

    def wait(self) -> None:
        with self._changed:
            if not self.has_wishes():
                self._changed.wait(_TICK)

    def note_written(self) -> None:
        self.publish(is_unwritten=False)

    def end(self, reached: AnyOutcome) -> None:
        """Show how the run ended, and wait until all pages have seen it: a page that has sends no more requests."""
        self.publish(status="ended", interrupted=reached.interrupted)
        give_up = time.monotonic() + _MOST_WAITED
        while time.monotonic() < min(self._last_request + _QUIET, give_up):
            time.sleep(_TICK)


AnyLive = TypeVar("AnyLive", bound=Live[Any, Any])


@contextmanager
def serve_live(
    make: Callable[[Callable[[str], object]], AnyLive],
    page: Path,
    port: int = 0,
    say: Callable[[str], object] = lambda words: None,
) -> Iterator[AnyLive]:
    """Serve a live page on this machine while the context lasts; yield the page, for a run's `live=...`.

    Args:
        make: makes the page of `say`.
        page: the file of the page.
        port: the port on 127.0.0.1; 0 for a free one.
        say: called with text for the terminal when the files are written and the page stays.

    Raises:
        InputError: the port is taken.
    """
    live = make(say)
    with serve_page(live, page, port) as live.url:
        yield live
