"""The adjoint: from a kernel of the IR to the kernels that its gradient takes."""

from ._adjoint import adjoint
from ._dependences import Unchanged, find_unchanged_after
from ._flops import count_flops, count_loss_by_atomics, count_operations, count_parallel_loops
from ._gathers import gather_additions
from ._handed_on import hand_on_adjoints
from ._one_thread import serial_twin
from ._plan import Decision, How
from ._program import Action, Copy, Fresh, Program, Reserve, Run, TapeSize, WithResults
from ._promises import NO_PROMISES, Promise
from ._records import Records, records_of
from ._reversible import find_promised
from ._whole_gradients import store_whole_gradients

__all__ = [
    "Action",
    "Copy",
    "Decision",
    "Fresh",
    "How",
    "NO_PROMISES",
    "Program",
    "Promise",
    "Records",
    "Reserve",
    "Run",
    "TapeSize",
    "Unchanged",
    "WithResults",
    "adjoint",
    "count_flops",
    "count_loss_by_atomics",
    "count_operations",
    "count_parallel_loops",
    "find_promised",
    "find_unchanged_after",
    "gather_additions",
    "hand_on_adjoints",
    "records_of",
    "serial_twin",
    "store_whole_gradients",
]
