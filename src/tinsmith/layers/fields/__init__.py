"""Fields: kernels that work on an engine's fields, as functions of tensors."""

from ._as_op import OpProgram
from ._call import apart, run
from ._examined import ExaminedFields
from ._managers import FieldManager
from ._placed import Placed, placed
from ._program import Program, clearing
from ._roles import Habits, Launch, Roles, check_once
from ._running import OnFields, Running, make_running
from ._transfer import fill, read

__all__ = [
    "ExaminedFields",
    "FieldManager",
    "Habits",
    "Launch",
    "OnFields",
    "OpProgram",
    "Placed",
    "Program",
    "Roles",
    "Running",
    "apart",
    "check_once",
    "clearing",
    "fill",
    "make_running",
    "placed",
    "read",
    "run",
]
