"""Live: a run that is watched and steered from a page. This is what training and page tell each other.

Everything that touches the model happens on the training's thread, between two steps. The server's threads only
read what was published last and leave wishes behind.
"""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from .._film import as_pixels, psnr_of_pixels
from .._interrupt import Stop
from .._loop import Reached
from .._pictures import BRIGHTEST_ERROR, error_map, picture
from .._progress import Watch
from ._server import Wish, serving
from ._training import Training

BLOCK_STEPS = 200
"""Steps that a block's network takes when it is clicked on."""

_LEAST_PAUSE = 0.25  # seconds between two pictures
_SHARE = 4  # of the time: making pictures takes one part in so many and one
_CHUNK = 20  # steps of a block between two looks at whether to stop
_TICK = 0.1  # seconds until a wish, or Ctrl-C, is noticed while nothing runs
_QUIET = 1.5  # seconds: a page that has asked for nothing so long has seen the end, or is gone
_MOST_WAITED = 5.0  # seconds, for pages that have not seen the end


class Live:
    """A run on a page. `url` is where the page is; `say` tells the terminal when something is to be done there.

    The training's thread calls `begin`, what `watching` gives after each step, and `finish`; the server's threads
    call `told`, `shown` and `wish`.
    """

    def __init__(self, say: Callable[[str], object] = lambda words: None) -> None:
        self.url = ""
        self._say = say
        self._stop = Stop()
        self._changed = threading.Condition()
        self._told: dict[str, Any] = {"version": 0, "status": "starting"}
        self._pictures: dict[str, bytes] = {}
        self._blocks_wanted: deque[tuple[int, int]] = deque()
        self._is_paused = False
        self._is_unwritten = True
        self._asked = -_QUIET
        self._next = 0.0

    # The server's threads ------------------------------------------------------------------
    def told(self) -> dict[str, Any]:
        """What is known of the run: numbers and texts."""
        with self._changed:
            self._asked = time.monotonic()
            return dict(self._told)

    def shown(self, name: str) -> bytes | None:
        """The PNG of "photo", "learned" or "error", as published last; None for others."""
        with self._changed:
            self._asked = time.monotonic()
            return self._pictures.get(name)

    def wish(self, wish: Wish) -> str:
        """Take a wish of the page's; what is wrong with it, or ""."""
        with self._changed:
            trouble = self._taken(wish)
            self._changed.notify_all()
        return trouble

    def _taken(self, wish: Wish) -> str:
        if wish.name == "retrain":
            return self._block_taken(wish)
        if wish.name == "stop":
            self._stop.requested = True
        else:
            self._is_paused = wish.name == "pause"
        return ""

    def _block_taken(self, wish: Wish) -> str:
        grid = self._told.get("grid_shape")
        if not grid:
            return "this is one network: it has no blocks"
        if not (0 <= wish.row < grid[0] and 0 <= wish.column < grid[1]):
            return f"there is no block in row {wish.row}, column {wish.column}"
        if (wish.row, wish.column) not in self._blocks_wanted:
            self._blocks_wanted.append((wish.row, wish.column))
        return ""

    # The training's thread -----------------------------------------------------------------
    def begin(self, training: Training, stop: Stop, folder: Path) -> None:
        """Show a training from now on; `stop` is what asks it to stop, `folder` where its files will be."""
        stop.requested |= self._stop.requested  # the page was quicker
        self._training, self._stop = training, stop
        self._pictures["photo"] = _png(picture(training.looked_at.pixels))
        grid = training.recipe.grid_shape
        self._told |= {
            "photograph": training.photo.name,
            "configuration": training.recipe.name,
            "size": _size(training),
            "width": training.looked_at.columns[-1],
            "height": training.looked_at.rows[-1],
            "grid_shape": None if grid is None else list(grid),
            "rows": training.looked_at.rows,
            "columns": training.looked_at.columns,
            "block_steps": BLOCK_STEPS,
            "brightest_error": BRIGHTEST_ERROR,
            "curve": list(zip(training.history.looked, training.history.psnrs, strict=True)),
            "retrained": None,
            "folder": str(folder.resolve()),
        }
        self._publish("learning")

    def watching(self, watch: Watch | None) -> Watch:
        """A watch that calls this one too, and then does what the page wants."""

        def between(step: int, steps: int, psnr: float) -> None:
            if watch is not None:
                watch(step, steps, psnr)
            self._train_wanted("learning")
            if self._is_paused:
                self._publish("paused")
                self._wait_while("paused", lambda: self._is_paused)
            if time.monotonic() >= self._next:
                self._publish("learning")

        return between

    def finish(self, write: Callable[[], Reached]) -> Reached:
        """Have the results written, keep the page until asked to stop, and let it say how it ended.

        While the page stays it has blocks trained that are wanted; the results are then written once more.
        """
        self._publish("writing")
        reached = self._written(write)
        if not self._stop.requested:
            self._say(f"The files are in {self._told['folder']}. The page stays until its button or Ctrl-C ends it.")
            self._tell(status="done")
            self._wait_while("done", lambda: True)
        if self._is_unwritten:
            self._tell(status="writing")
            reached = self._written(write)
        self._tell(status="ended", interrupted=reached.interrupted)
        self._wait_for_pages()
        return reached

    def _written(self, write: Callable[[], Reached]) -> Reached:
        reached = write()
        self._is_unwritten = False
        self._tell(is_unwritten=False)
        return reached

    def _wait_for_pages(self) -> None:
        """Let pages see the end: one that has asks no more."""
        give_up = time.monotonic() + _MOST_WAITED
        while time.monotonic() < min(self._asked + _QUIET, give_up):
            time.sleep(_TICK)

    def _wait_while(self, status: str, wanted: Callable[[], bool]) -> None:
        while wanted() and not self._stop.requested:
            self._train_wanted(status)
            with self._changed:
                if not self._blocks_wanted:
                    self._changed.wait(_TICK)

    def _train_wanted(self, status: str) -> None:
        while self._blocks_wanted and not self._stop.requested:
            row, column = self._blocks_wanted[0]
            self._train_block(row, column)
            self._blocks_wanted.popleft()
            self._publish(status)

    def _train_block(self, row: int, column: int) -> None:
        place = row * self._training.blocks.grid_shape[1] + column
        before = self._training.psnr_by_block(self._training.glance())[place]
        self._is_unwritten = True
        self._tell(status="training a block", block=[row, column], is_unwritten=True)
        for _ in range(BLOCK_STEPS // _CHUNK):
            if not self._stop.requested:
                self._training.train_block(row, column, _CHUNK)
        after = self._training.psnr_by_block(self._training.glance())[place]
        self._tell(retrained={"row": row, "column": column, "before": before, "after": after}, block=None)

    def _publish(self, status: str) -> None:
        """Make pictures of what the model has learned by now, and numbers to go with them."""
        start = time.monotonic()
        training, image = self._training, self._training.glance()
        pixels = as_pixels(image)
        psnr = psnr_of_pixels(pixels, training.looked_at.pixels)
        pictures = {"learned": _png(picture(pixels)), "error": _png(error_map(pixels, training.looked_at.pixels))}
        blocks = training.psnr_by_block(image) if training.recipe.grid_shape else None
        with self._changed:
            self._pictures |= pictures
        curve = [point for point in self._told["curve"] if point[0] != training.step]
        self._tell(
            version=self._told["version"] + 1,
            status=status,
            step=training.step,
            steps=training.steps,
            psnr=psnr,
            loss=training.loss,
            psnr_by_block=blocks,
            curve=[*curve, (training.step, psnr)],
        )
        # The first time says nothing of how long the next takes: kernels were compiled in it.
        took = 0 if self._told["version"] == 1 else time.monotonic() - start
        self._next = time.monotonic() + max(_LEAST_PAUSE, _SHARE * took)

    def _tell(self, **values: Any) -> None:
        with self._changed:
            self._told |= values


@contextmanager
def live_page(port: int = 0, say: Callable[[str], object] = lambda words: None) -> Iterator[Live]:
    """Within, a page on this machine shows a run: `learn_image(options, live=...)`.

    Args:
        port: of 127.0.0.1; 0 for one that is free.
        say: called with words for the terminal when the files are written and the page stays.

    Raises:
        InputError: the port is taken.
    """
    live = Live(say)
    with serving(live, port) as live.url:
        yield live


def _size(training: Training) -> str:
    photo, seen = training.photo, training.looked_at.pixels
    size = f"{photo.width} × {photo.height}"
    return size if seen.shape == photo.pixels.shape else f"{size}, of which {seen.shape[1]} × {seen.shape[0]} are shown"


def _png(image: Image.Image) -> bytes:
    held = io.BytesIO()
    image.save(held, "PNG", compress_level=1)
    return held.getvalue()
