"""Tin and EmptyTin: modules whose kernels refer to fields."""

from ._empty_tin import EmptyTin
from ._marks import input, kernel, output, weight  # noqa: A004  # read as `ts.input`
from ._tin import Tin

__all__ = ["EmptyTin", "Tin", "input", "kernel", "output", "weight"]
