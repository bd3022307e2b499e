"""Gradients: an op's own, the oracle's and central differences, in the best precision there is, compared."""

from ._apart import pulled_back_apart
from ._compared import Compared, Comparison
from ._differences import Steps
from ._function import (
    Function,
    Tensors,
    in_double,
    of_interpreter,
    of_op,
    pulled_back,
    random_cotangents,
    same_numbers,
)
from ._told import told, values_that_differ
from ._verdict import Tolerance

__all__ = [
    "Compared",
    "Comparison",
    "Function",
    "Steps",
    "Tensors",
    "Tolerance",
    "in_double",
    "of_interpreter",
    "of_op",
    "pulled_back",
    "pulled_back_apart",
    "random_cotangents",
    "same_numbers",
    "told",
    "values_that_differ",
]
