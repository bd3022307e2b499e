"""Packed samples: those of a ray are contiguous, and `rays[ray]` has their start and count."""

from types import ModuleType
from typing import Any


def build_span(lang: ModuleType) -> Any:
    """Build the function `span(rays, ray, size)`: a ray's first sample, and the one after its last.

    The range is clamped to the existing samples, so that a wrong `rays` never causes access to other memory.
    """

    @lang.func
    def span(rays: lang.template(), ray, size):
        first = lang.max(rays[ray, 0], 0)
        return first, first + lang.max(lang.min(rays[ray, 1], size - first), 0)

    return span
