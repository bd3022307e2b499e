"""Fields: kernels that work on an engine's fields, as functions of tensors."""

from ._as_op import OpProgram
from ._call import break_graph
from ._call_notes import fingerprints_of
from ._effects import Reading
from ._field_copies import FieldCopies
from ._function import FieldFunction, OneSample, refuse_second
from ._layer_field import LayerField, find_half_precision, place_field
from ._managers import FieldManager
from ._on_arrays import ArrayProgram, NoArray
from ._on_fields import OnFields, refuse_generated
from ._program import build_clear_function
from ._roles import Habits, Launch, Roles, Use, by_key, check_once, uses_of_each
from ._running import Running, make_running, warn_of_sums, warn_of_unwritten_outputs
from ._starts import Starts
from ._transfer import fill, is_whole, read, whole

__all__ = [
    "ArrayProgram",
    "FieldCopies",
    "FieldFunction",
    "FieldManager",
    "Habits",
    "Launch",
    "LayerField",
    "NoArray",
    "OnFields",
    "OneSample",
    "OpProgram",
    "Reading",
    "Roles",
    "Running",
    "Starts",
    "Use",
    "break_graph",
    "build_clear_function",
    "by_key",
    "check_once",
    "fill",
    "find_half_precision",
    "fingerprints_of",
    "is_whole",
    "make_running",
    "place_field",
    "read",
    "refuse_generated",
    "refuse_second",
    "uses_of_each",
    "warn_of_sums",
    "warn_of_unwritten_outputs",
    "whole",
]
