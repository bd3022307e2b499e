"""Fields: kernels that work on an engine's fields, as functions of tensors."""

from ._as_op import OpProgram
from ._call import OnFields, apart, run
from ._managers import FieldManager
from ._placed import Placed, placed
from ._program import Program, clearing
from ._roles import Habits, Launch, Roles, check_once
from ._running import Running, make_running
from ._transfer import fill, read

__all__ = [
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
