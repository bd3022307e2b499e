"""Kernels that show the language: every construct that the front end lowers, in a table."""

from rows import _cells, _control, _early, _functions, _more, _scalars, _vectors
from rows._table import Draw

ALL = [*_control.ROWS, *_scalars.ROWS, *_vectors.ROWS, *_functions.ROWS, *_more.ROWS, *_cells.ROWS, *_early.ROWS]

__all__ = ["ALL", "Draw"]
