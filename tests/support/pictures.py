"""Pictures compared by how they look."""

import numpy as np
from PIL import Image

TOLERANCE = 3.0
"""Of 255, the mean difference of two pictures' pixels, seen at a quarter of their size."""


def measure_difference(one: Image.Image, other: Image.Image) -> float:
    """Measure how different two pictures look, in gray levels per pixel."""
    assert one.size == other.size
    small = (max(1, one.width // 4), max(1, one.height // 4))
    seen = [np.asarray(image.convert("RGB").resize(small, Image.Resampling.BOX), dtype=float) for image in (one, other)]
    return float(np.abs(seen[0] - seen[1]).mean())


def check_caption(film, rows):
    """Check that a film is at least 480 pixels wide, and has text that fits above a picture of so many rows."""
    assert film.width >= 480
    film.seek(5)
    caption = np.asarray(film.convert("L"))[: film.height - rows]
    assert len(caption) > 40 and (caption < 64).any() and (caption[:, -6:] > 240).all()
