"""Maxima and minima that atomics take, in terms of ordinary statements, for the adjoint and for the tangent."""

from ._extreme import Beside, Change, Entry, Extreme, Index, extremes_in, extremes_of
from ._in_order import write_in_order
from ._search import Expansion, Search, note_of

__all__ = [
    "Beside",
    "Change",
    "Entry",
    "Expansion",
    "Extreme",
    "Index",
    "Search",
    "extremes_in",
    "extremes_of",
    "note_of",
    "write_in_order",
]
