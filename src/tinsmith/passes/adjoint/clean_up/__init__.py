"""The last step of the adjoint: gathers for atomics, stores for sums, no copies. Each pass takes a program."""

from ._gathers import gather_additions
from ._handed_on import hand_on_adjoints
from ._options import CleanUpOptions
from ._whole_gradients import store_whole_gradients

__all__ = ["CleanUpOptions", "gather_additions", "hand_on_adjoints", "store_whole_gradients"]
