"""Which cases of a test function the ordinary run takes, where it is marked `thinned(n)`."""

from __future__ import annotations

import zlib


def kept(function: str, count: int, step: int) -> range:
    """Every nth of its cases, one at least. The first differs from function to function, and never changes."""
    return range(zlib.crc32(function.encode()) % min(step, count), count, step)
