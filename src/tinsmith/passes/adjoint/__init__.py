"""The adjoint: from a kernel of the IR to the kernels that its gradient takes."""

from ._adjoint import adjoint, clean_up
from ._dependences import Unchanged, find_unchanged_after
from ._flops import count_flops, count_loss_by_atomics, count_operations, count_parallel_loops
from ._one_thread import serial_twin
from ._plan import Decision, How
from ._program import Action, Copy, Fresh, Program, Reserve, Run, TapeSize, WithResults
from ._promises import NO_PROMISES, Promise
from ._records import Records, records_of
from ._reversible import find_promised

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
    "clean_up",
    "count_flops",
    "count_loss_by_atomics",
    "count_operations",
    "count_parallel_loops",
    "find_promised",
    "find_unchanged_after",
    "records_of",
    "serial_twin",
]
