"""The live page of learn-image, where a click trains one block's network."""

from __future__ import annotations

import functools
import io
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from .._film import as_pixels, psnr_of_pixels
from .._live import Live, serve_live
from .._outcome import Reached
from .._page_server import Wish
from .._pictures import BRIGHTEST_ERROR, draw_error_map, make_image
from ._learner import NetworkLearner

BLOCK_STEPS = 200
"""The number of steps that a click on a block trains its network."""

_CHUNK = 20  # steps of a block between checks for a stop
_PAGE = Path(__file__).with_name("page.html")


class LiveImage(Live[NetworkLearner, Reached]):
    """A page of a run: see `Live`. Its pictures are "photo", "learned" and "error"."""

    def __init__(self, say: Callable[[str], object] = lambda words: None) -> None:
        super().__init__(say)
        self._blocks_wanted: deque[tuple[int, int]] = deque()

    def describe_start(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        learner, history = self._training.learner, self._training.history
        grid = learner.recipe.grid_shape
        return {"photo": _png(make_image(learner.looked_at.pixels))}, {
            "photograph": learner.photo.name,
            "configuration": learner.recipe.name,
            "size": _size(learner),
            "width": learner.looked_at.columns[-1],
            "height": learner.looked_at.rows[-1],
            "grid_shape": None if grid is None else list(grid),
            "rows": learner.looked_at.rows,
            "columns": learner.looked_at.columns,
            "block_steps": BLOCK_STEPS,
            "brightest_error": BRIGHTEST_ERROR,
            "curve": list(zip(history.looked, history.psnrs, strict=True)),
            "retrained": None,
        }

    def look(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """Return the learned picture and its error as PNG, and its PSNR and other facts."""
        training, learner = self._training, self._training.learner
        image = learner.render_preview()
        pixels = as_pixels(image)
        psnr = psnr_of_pixels(pixels, learner.looked_at.pixels)
        pictures = {
            "learned": _png(make_image(pixels)),
            "error": _png(draw_error_map(pixels, learner.looked_at.pixels)),
        }
        curve = [point for point in self._facts["curve"] if point[0] != training.step]
        return pictures, {
            "step": training.step,
            "steps": training.steps,
            "psnr": psnr,
            "loss": training.history.loss,
            "psnr_by_block": learner.psnr_by_block(image) if learner.recipe.grid_shape else None,
            "curve": [*curve, (training.step, psnr)],
        }

    # Blocks --------------------------------------------------------------------------------
    def take_wish(self, wish: Wish) -> str:
        """Accept a request. Besides those of all pages, "retrain" asks to train a block."""
        if wish.name != "retrain":
            return super().take_wish(wish)
        grid = self._facts.get("grid_shape")
        if not grid:
            return "this is one network: it has no blocks"
        if not (0 <= wish.row < grid[0] and 0 <= wish.column < grid[1]):
            return f"there is no block in row {wish.row}, column {wish.column}"
        if (wish.row, wish.column) not in self._blocks_wanted:
            self._blocks_wanted.append((wish.row, wish.column))
        return ""

    def has_wishes(self) -> bool:
        """Return True if a block is waiting to be trained."""
        return bool(self._blocks_wanted)

    def grant_wishes(self, status: str) -> None:
        """Train the blocks that were clicked."""
        while self._blocks_wanted and not self._stop.is_requested:
            row, column = self._blocks_wanted[0]
            self._train_block(row, column)
            self._blocks_wanted.popleft()
            self.show(status)

    def _train_block(self, row: int, column: int) -> None:
        learner = self._training.learner
        place = row * learner.blocks.grid_shape[1] + column
        before = learner.psnr_by_block(learner.render_preview())[place]
        self._is_unwritten = True
        self.publish(status="training a block", block=[row, column], is_unwritten=True)
        for _ in range(BLOCK_STEPS // _CHUNK):
            if not self._stop.is_requested:
                learner.train_block(row, column, _CHUNK)
        after = learner.psnr_by_block(learner.render_preview())[place]
        self.publish(retrained={"row": row, "column": column, "before": before, "after": after}, block=None)


live_page = functools.partial(serve_live, LiveImage, _PAGE)
"""Enters a context that serves the page: `serve_live`, of a port and a function that prints."""


def _size(learner: NetworkLearner) -> str:
    photo, seen = learner.photo, learner.looked_at.pixels
    size = f"{photo.width} × {photo.height}"
    return size if seen.shape == photo.pixels.shape else f"{size}, of which {seen.shape[1]} × {seen.shape[0]} are shown"


def _png(image: Image.Image) -> bytes:
    held = io.BytesIO()
    image.save(held, "PNG", compress_level=1)
    return held.getvalue()
