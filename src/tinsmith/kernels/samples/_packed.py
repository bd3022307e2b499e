"""Packed samples: those of a ray lie beside each other, and `rays[ray]` = start, count says where."""

from types import ModuleType
from typing import Any


def spans(lang: ModuleType) -> Any:
    """Build the function `span(rays, ray, size)`: a ray's first sample, and the one after its last.

    A ray that reaches outside of the samples there are is cut: a wrong `rays` must not cost other memory.
    """

    @lang.func
    def span(rays: lang.template(), ray, size):
        first = lang.max(rays[ray, 0], 0)
        return first, first + lang.max(lang.min(rays[ray, 1], size - first), 0)

    return span
