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
from ._modes import Mode, Modes, describe_modes, skipped_modes
from ._proposal import Proposal, propose
from ._told import describe_gradient, describe_zeros, values_that_differ
from ._verdict import Tolerance

__all__ = [
    "Compared",
    "Comparison",
    "Function",
    "Mode",
    "Modes",
    "Proposal",
    "Steps",
    "Tensors",
    "Tolerance",
    "describe_gradient",
    "describe_modes",
    "describe_zeros",
    "in_double",
    "of_interpreter",
    "of_op",
    "propose",
    "pulled_back",
    "pulled_back_apart",
    "random_cotangents",
    "same_numbers",
    "skipped_modes",
    "values_that_differ",
]
