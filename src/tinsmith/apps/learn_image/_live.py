"""Live: a run that is watched and steered from a page. This is what training and page tell each other.

Everything that touches the model happens on the training's thread, between two steps. The server's threads only
read what was published last and leave wishes behind.
"""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PIL import Image

from .._film import as_pixels, psnr_of_pixels
from .._interrupt import Stop
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


class Live:
    """A run on a page. `url` is where the page is.

    The training's thread calls `begin`, what `watching` gives after each step, and `stay`; the server's threads
    call `told`, `shown` and `wish`.
    """

    def __init__(self) -> None:
        self.url = ""
        self._stop = Stop()
        self._changed = threading.Condition()
        self._told: dict[str, Any] = {"version": 0, "status": "starting"}
        self._pictures: dict[str, bytes] = {}
        self._blocks_wanted: deque[tuple[int, int]] = deque()
        self._is_paused = False
        self._next = 0.0

    # The server's threads ------------------------------------------------------------------
    def told(self) -> dict[str, Any]:
        """What is known of the run: numbers and texts."""
        with self._changed:
            return dict(self._told)

    def shown(self, name: str) -> bytes | None:
        """The PNG of "photo", "learned" or "error", as published last; None for others."""
        with self._changed:
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
            return f"there is no block {wish.row}, {wish.column}"
        if (wish.row, wish.column) not in self._blocks_wanted:
            self._blocks_wanted.append((wish.row, wish.column))
        return ""

    # The training's thread -----------------------------------------------------------------
    def begin(self, training: Training, stop: Stop) -> None:
        """Show a training from now on; `stop` is what asks it to stop."""
        stop.requested |= self._stop.requested  # the page was quicker
        self._training, self._stop = training, stop
        self._pictures["photo"] = _png(picture(training.photo.pixels))
        grid = training.recipe.grid_shape
        self._told |= {
            "photograph": training.photo.name,
            "configuration": training.recipe.name,
            "width": training.photo.width,
            "height": training.photo.height,
            "grid_shape": None if grid is None else list(grid),
            "rows": training.blocks.rows,
            "columns": training.blocks.columns,
            "block_steps": BLOCK_STEPS,
            "brightest_error": BRIGHTEST_ERROR,
            "curve": list(zip(training.history.looked, training.history.psnrs, strict=True)),
            "retrained": None,
        }
        self._publish("learning")

    def watching(self, watch: Watch | None) -> Watch:
        """A watch that calls this one too, and then does what the page wants."""

        def between(step: int, steps: int, psnr: float) -> None:
            if watch is not None:
                watch(step, steps, psnr)
            self._train_wanted("learning")
            if self._is_paused:
                self._wait_while("paused", lambda: self._is_paused)
            if time.monotonic() >= self._next:
                self._publish("learning")

        return between

    def stay(self) -> None:
        """After the last step: keep the page, and train blocks that are wanted, until asked to stop."""
        self._wait_while("done", lambda: True)
        self._publish("finished")

    def _wait_while(self, status: str, wanted: Any) -> None:
        self._publish(status)
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
        before = self._training.psnr_by_block(self._training.image())[place]
        self._tell(status="training a block", block=[row, column])
        for _ in range(BLOCK_STEPS // _CHUNK):
            if not self._stop.requested:
                self._training.train_block(row, column, _CHUNK)
        after = self._training.psnr_by_block(self._training.image())[place]
        self._tell(retrained={"row": row, "column": column, "before": before, "after": after}, block=None)

    def _publish(self, status: str) -> None:
        """Make pictures of what the model has learned by now, and numbers to go with them."""
        start = time.monotonic()
        training, image = self._training, self._training.image()
        pixels = as_pixels(image)
        psnr = psnr_of_pixels(pixels, training.photo.pixels)
        pictures = {"learned": _png(picture(pixels)), "error": _png(error_map(pixels, training.photo.pixels))}
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
def live_page(port: int = 0) -> Iterator[Live]:
    """Within, a page on this machine shows a run: `learn_image(options, live=...)`.

    Args:
        port: of 127.0.0.1; 0 for one that is free.

    Raises:
        InputError: the port is taken.
    """
    live = Live()
    with serving(live, port) as live.url:
        yield live


def _png(image: Image.Image) -> bytes:
    held = io.BytesIO()
    image.save(held, "PNG", compress_level=1)
    return held.getvalue()
