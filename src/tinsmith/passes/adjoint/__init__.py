"""The adjoint: from the kernels of an op to the launches that its gradient takes. `ADJOINT` has its passes in order.

    kernels --normalize--> tasks in SSA form --decide--> a plan of each --emit--> their reverses --assemble--> a program

Each folder is a step. `_ssa` describes the form that is reversed, `_plan` the table of what is decided, `_program` what
results. A kernel is reversed once, however often it is launched. The adjoint of an expression is in
`analyses._derivatives`, that of a statement in `emit._frame_reversal`, that of a loop in `emit._loop_reversal`. Maxima
and minima of arrays, `atomic_max(y[i], v)`, become comparisons with the value that won before anything is reversed:
`passes.extremes`.
"""

from ._checkpoints import use_checkpoints
from ._dependences import Unchanged, find_unchanged_after
from ._flops import count_flops, count_loss_by_atomics, count_operations, count_parallel_loops
from ._plan import Decision, How
from ._program import Action, Copy, Fresh, Program, Reserve, Run, WithResults
from ._promises import NO_PROMISES, Promise
from ._records import Records, records_of
from ._tapes import TapeSize
from .clean_up import CleanUpOptions, gather_additions, hand_on_adjoints, store_whole_gradients
from .decide import decide_sources
from .emit import Planned, Reversed, assemble, emit_reverses
from .normalize import AdjointOptions, NormalForm, find_promised, normalize_kernels

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
    "emit_reverses",
    "find_promised",
    "find_unchanged_after",
    "gather_additions",
    "hand_on_adjoints",
    "normalize_kernels",
    "records_of",
    "store_whole_gradients",
    "use_checkpoints",
]
