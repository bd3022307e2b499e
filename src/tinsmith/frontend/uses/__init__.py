"""How a kernel uses its arrays: reads, writes and additions, also in functions that it calls; what a reverse needs."""

from ._field_uses import BodyUse, FieldUse, uses_in_body
from ._later_changes import LaterChanges
from ._references import changed_loop_variables, find_changed_loop_variable, find_lent_names
from ._role_walk import find_store_line, roles_of
from ._roles import Access, Roles
from ._saved_values import SavedValues, find_saved_values

__all__ = [
    "Access",
    "BodyUse",
    "FieldUse",
    "LaterChanges",
    "Roles",
    "SavedValues",
    "changed_loop_variables",
    "find_changed_loop_variable",
    "find_lent_names",
    "find_saved_values",
    "find_store_line",
    "roles_of",
    "uses_in_body",
]
