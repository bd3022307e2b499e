"""Pictures compared by how they look."""

import numpy as np
from PIL import Image

TOLERANCE = 3.0
"""Of 255, the mean difference of two pictures' pixels, seen at a quarter of their size."""


def measure_difference(one: Image.Image, other: Image.Image) -> float:
    """How different two pictures look, in gray values of a pixel."""
    assert one.size == other.size
    small = (max(1, one.width // 4), max(1, one.height // 4))
    seen = [np.asarray(image.convert("RGB").resize(small, Image.Resampling.BOX), dtype=float) for image in (one, other)]
    return float(np.abs(seen[0] - seen[1]).mean())
