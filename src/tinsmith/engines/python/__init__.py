"""The Python engine: kernels run as Python, for debuggers and tests."""

from ._engine import Checks, Python
from ._exact import ExactKernel
from ._exact_memory import ExactArray
from ._exact_numbers import EXACT_OPERATIONS, NoRule
from ._launch import MANY_ELEMENTS, hide_frames, run_kernel
from ._memory import track_writes
from ._observers import How, Number, Recorder, Watch

__all__ = [
    "Checks",
    "EXACT_OPERATIONS",
    "ExactArray",
    "ExactKernel",
    "How",
    "MANY_ELEMENTS",
    "NoRule",
    "Number",
    "Python",
    "Recorder",
    "Watch",
    "hide_frames",
    "run_kernel",
    "track_writes",
]
