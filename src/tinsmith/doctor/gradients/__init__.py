"""Gradients: compares an op's own gradient with the oracle's and with central differences, in the best available
precision.
"""

from ._child_process import pull_back_in_child
from ._comparison import Comparison, InputDerivatives
from ._differences import Steps
from ._findings import describe_gradient, describe_zeros, find_differing_values
from ._function import (
    Function,
    Tensors,
    convert_to_double,
    draw_same_numbers,
    make_interpreted_function,
    make_op_function,
    pull_back,
    random_cotangents,
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
    "convert_to_double",
    "describe_gradient",
    "describe_modes",
    "describe_zeros",
    "draw_same_numbers",
    "find_differing_values",
    "make_interpreted_function",
    "make_op_function",
    "propose",
    "pull_back",
    "pull_back_in_child",
    "random_cotangents",
    "skip_modes",
]
