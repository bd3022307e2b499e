"""The adjoint: from a kernel of the IR to the kernels that its gradient takes."""

from ._dependences import Unchanged, find_unchanged_after
from ._flops import count_flops, count_loss_by_atomics, count_operations, count_parallel_loops
from ._normalize import AdjointOptions, NormalForm, normalize
from ._one_thread import serial_twin
from ._plan import Decision, How
from ._program import Action, Copy, Fresh, Program, Reserve, Run, WithResults
from ._promises import NO_PROMISES, Promise
from ._records import Records, records_of
from ._reversible import find_promised
from ._steps import (
    CleanUpOptions,
    Planned,
    Reversed,
    assemble,
    decide_sources,
    emit,
    gather,
    hand_on,
    store_whole,
    use_checkpoints,
)
from ._tapes import TapeSize

__all__ = [
    "Action",
    "AdjointOptions",
    "CleanUpOptions",
    "Copy",
    "Decision",
    "Fresh",
    "How",
    "NO_PROMISES",
    "NormalForm",
    "Planned",
    "Program",
    "Promise",
    "Records",
    "Reserve",
    "Reversed",
    "Run",
    "TapeSize",
    "Unchanged",
    "WithResults",
    "assemble",
    "count_flops",
    "count_loss_by_atomics",
    "count_operations",
    "count_parallel_loops",
    "decide_sources",
    "emit",
    "find_promised",
    "find_unchanged_after",
    "gather",
    "hand_on",
    "normalize",
    "records_of",
    "serial_twin",
    "store_whole",
    "use_checkpoints",
]
