"""Passes over a kernel's Python tree: it stays what its author wrote, made to fit a call."""

from ._fields import pass_fields, restore_fields
from ._loops import NotRewritable, loop_over_ranges, serialize_loops
from ._parameters import annotate, begin_with_copies, lift_scalars, rename_parameters, split_gradients
from ._results import drop_results, store_results
from ._simplify import simplify_tree
from ._stores import drop_gradient_stores, drop_stores
from ._structs import flatten_structs

__all__ = [
    "NotRewritable",
    "annotate",
    "begin_with_copies",
    "drop_gradient_stores",
    "drop_results",
    "drop_stores",
    "flatten_structs",
    "lift_scalars",
    "loop_over_ranges",
    "pass_fields",
    "rename_parameters",
    "restore_fields",
    "serialize_loops",
    "simplify_tree",
    "split_gradients",
    "store_results",
]
