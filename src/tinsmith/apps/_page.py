"""Pages that show a run, and can pause and stop it: the base class of the pages of `--live` and `--view`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Generic

from ._interrupt import Stop
from ._progress import Watch
from ._training import AnyLearner, AnyOutcome, Training


class Page(ABC, Generic[AnyLearner, AnyOutcome]):
    """A page that shows a run.

    The training's thread calls `begin`, then the watch that `make_watch` returns after each step, and then `finish`.
    Everything that uses the model happens in that thread, between two steps: the threads that serve the page only queue
    requests.

    Attributes:
        url: the page's address.
        title, name: what messages call the page.
    """

    title: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, say: Callable[[str], object]) -> None:
        self.url = ""
        self._say = say
        self._stop = Stop()
        self._is_paused = self._is_unwritten = False

    def begin(self, training: Training[AnyLearner], stop: Stop, folder: Path) -> None:
        """Show a training from now on. `stop` is the flag that requests its end, `folder` its output folder."""
        # The page may have requested a stop before the start.
        stop.is_requested |= self._stop.is_requested
        self._training, self._stop, self._folder = training, stop, folder.resolve()
        self.open()

    def make_watch(self, watch: Watch | None) -> Watch:
        """Return a callback for each step that calls `watch`, then carries out the page's requests and updates the
        page.
        """

        def between(step: int, steps: int, quality: float) -> None:
            if watch is not None:
                watch(step, steps, quality)
            self.grant_wishes("learning")
            if self._is_paused:
                self.show("paused")
                self._wait_while("paused", lambda: self._is_paused)
            self.show_step()

        return between

    def finish(self, write: Callable[[], AnyOutcome]) -> AnyOutcome:
        """Write the results, keep the page until a stop is requested, and show how the run ended. Return the outcome.

        While the page stays, its requests are carried out; if they changed anything, the results are written again.
        """
        self.show("writing")
        reached = self._write(write)
        if not self._stop.is_requested:
            self._say(f"The files are in {self._folder}. The {self.name} stays until its button or Ctrl-C ends it.")
            self.tell("done")
            self._wait_while("done", lambda: True)
        if self._is_unwritten:
            self.tell("writing")
            reached = self._write(write)
        self.end(reached)
        return reached

    @abstractmethod
    def open(self) -> None:
        """Show the training as it starts."""

    @abstractmethod
    def tell(self, status: str) -> None:
        """Show a status, such as "paused"."""

    @abstractmethod
    def show(self, status: str) -> None:
        """Show a status, and the current model."""

    @abstractmethod
    def show_step(self) -> None:
        """Show that the training has taken another step."""

    @abstractmethod
    def grant_wishes(self, status: str) -> None:
        """Carry out the page's requests other than pausing and stopping."""

    @abstractmethod
    def wait(self) -> None:
        """Wait a moment for requests."""

    @abstractmethod
    def note_written(self) -> None:
        """Show that the results are written."""

    @abstractmethod
    def end(self, reached: AnyOutcome) -> None:
        """Show how the run ended."""

    def _write(self, write: Callable[[], AnyOutcome]) -> AnyOutcome:
        reached = write()
        self._is_unwritten = False
        self.note_written()
        return reached

    def _wait_while(self, status: str, wanted: Callable[[], bool]) -> None:
        while wanted() and not self._stop.is_requested:
            self.grant_wishes(status)
            self.wait()
