"""Fields: kernels that work on an engine's fields, as functions of tensors."""

from ._as_op import OpProgram
from ._call import break_graph
from ._call_notes import fingerprints_of
from ._layer_field import LayerField, place_field
from ._managers import FieldManager
from ._on_arrays import ArrayProgram
from ._on_fields import OnFields, refuse_generated
from ._program import clearing
from ._roles import Habits, Launch, Roles, check_once
from ._running import Running, make_running, warn_of_sums
from ._starts import Starts
from ._transfer import fill, read

__all__ = [
    "ArrayProgram",
    "FieldManager",
    "Habits",
    "Launch",
    "LayerField",
    "OnFields",
    "OpProgram",
    "Roles",
    "Running",
    "Starts",
    "break_graph",
    "check_once",
    "clearing",
    "fill",
    "fingerprints_of",
    "make_running",
    "place_field",
    "read",
    "refuse_generated",
    "warn_of_sums",
]
