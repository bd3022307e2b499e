"""The Python engine: kernels run as Python, for debuggers and tests."""

from ._engine import MANY_ELEMENTS, Checks, Python, run_kernel
from ._exact import ExactKernel
from ._exact_memory import ExactArray
from ._exact_numbers import EXACT_OPERATIONS, NoRule
from ._frames import hide_frames
from ._observers import How, Number, Recorder, Watch
from ._unwritten import track_writes

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
