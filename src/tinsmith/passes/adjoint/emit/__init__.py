"""The third step of the adjoint: the reverse of each task, written as planned, and the order of the reverses."""

from ._emit import Planned, Reversed, assemble, emit_reverses
from ._frame_reversal import Block, FrameReversal, TurnedFrame
from ._loop_results import LoopResults
from ._loop_reversal import LoopReversal, without_locals
from ._task_reverse import TaskReverse, write_task, write_without_results

__all__ = [
    "Block",
    "FrameReversal",
    "LoopResults",
    "LoopReversal",
    "Planned",
    "Reversed",
    "TaskReverse",
    "TurnedFrame",
    "assemble",
    "emit_reverses",
    "without_locals",
    "write_task",
    "write_without_results",
]
