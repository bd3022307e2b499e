"""Maxima and minima that atomics take, in terms of ordinary statements."""

from ._extreme import Change, Extreme, Index, extremes_of
from ._written_out import WrittenOut, write_out_extremes

__all__ = ["Change", "Extreme", "Index", "WrittenOut", "extremes_of", "write_out_extremes"]
