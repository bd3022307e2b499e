"""Gradients: compares an op's own gradient with the oracle's and with central differences, in the best available
precision.
"""

from ._child_process import pull_back_in_child
from ._comparison import Comparison, InputDerivatives
from ._differences import Steps
from ._findings import describe_gradient, describe_zeros, values_that_differ
from ._function import (
    Function,
    Tensors,
    in_double,
    of_interpreter,
    of_op,
    pull_back,
    random_cotangents,
    same_numbers,
)
from ._modes import Mode, Modes, describe_modes, skip_modes
from ._proposal import Proposal, propose
from ._verdict import Tolerance

__all__ = [
    "Comparison",
    "Function",
    "InputDerivatives",
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
    "pull_back",
    "pull_back_in_child",
    "random_cotangents",
    "same_numbers",
    "skip_modes",
    "values_that_differ",
]
