"""Read a kernel's Python source, analyze its syntax tree, and lower it to IR.

Other packages hold a kernel as a `Source` or as IR, and import no `ast`: tests/test_floors.py checks it.
"""

from ..engines import copy_node, walk
from ._arity import subscript_arity
from ._calls import (
    Callee,
    EngineFacts,
    callee_of,
    draws,
    engine_call,
    find_breakpoint,
    find_forwarded_call,
    find_frexp,
    find_reachable,
    is_breakpoint,
    multiplies_atomically,
    prints,
    returns_from_atomics,
    runs_in_blocks,
)
from ._columns import Columns
from ._definitions import Loop, assignments, definitions, find_carried, sources
from ._effects import changes_of, shaping_name
from ._field_arguments import FieldPasser, LiveFieldPasser, free, pass_fields_as_arrays
from ._fingerprints import MISSING
from ._indices import affine_of, bind_index
from ._loops import Spot, dynamic, get_iterable, is_serialized, is_setting, is_static, range_bounds, runs_once, spots
from ._misuse import find_array_slice, find_method_call, find_mismatched_loop, find_unsupported
from ._modules import ModuleNames, find_function_spans
from ._nodes import index_parts, is_size, names_in, replace_nodes, resolve_callee, root, sub_expressions
from ._read import Source, Unrun, Written, find_called_function, read, resolve_calls
from ._rebuild import rebuild_function
from ._stacks import Nest, carrying_nests
from .uses import (
    Access,
    FieldUse,
    LaterChanges,
    Roles,
    SavedValues,
    changed_loop_variables,
    find_changed_loop_variable,
    find_lent_names,
    find_saved_values,
    find_store_line,
    roles_of,
)
from .values import Change, Constants, constants_of, find_changed_value, number_of

__all__ = [
    "Access",
    "Callee",
    "Change",
    "Columns",
    "Constants",
    "EngineFacts",
    "FieldPasser",
    "FieldUse",
    "LaterChanges",
    "LiveFieldPasser",
    "Loop",
    "MISSING",
    "ModuleNames",
    "Nest",
    "Roles",
    "SavedValues",
    "Source",
    "Spot",
    "Unrun",
    "Written",
    "affine_of",
    "assignments",
    "bind_index",
    "callee_of",
    "carrying_nests",
    "changed_loop_variables",
    "changes_of",
    "constants_of",
    "copy_node",
    "definitions",
    "draws",
    "dynamic",
    "engine_call",
    "find_array_slice",
    "find_breakpoint",
    "find_called_function",
    "find_carried",
    "find_changed_loop_variable",
    "find_changed_value",
    "find_forwarded_call",
    "find_frexp",
    "find_function_spans",
    "find_lent_names",
    "find_method_call",
    "find_mismatched_loop",
    "find_reachable",
    "find_saved_values",
    "find_store_line",
    "find_unsupported",
    "free",
    "get_iterable",
    "index_parts",
    "is_breakpoint",
    "is_serialized",
    "is_setting",
    "is_size",
    "is_static",
    "multiplies_atomically",
    "names_in",
    "number_of",
    "pass_fields_as_arrays",
    "prints",
    "range_bounds",
    "read",
    "rebuild_function",
    "replace_nodes",
    "resolve_callee",
    "resolve_calls",
    "returns_from_atomics",
    "roles_of",
    "root",
    "runs_in_blocks",
    "runs_once",
    "shaping_name",
    "sources",
    "spots",
    "sub_expressions",
    "subscript_arity",
    "walk",
]
