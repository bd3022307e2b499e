"""Passes: from a kernel's tree or IR to another one, one a file."""

from ._aliases import flat, has_aliases, has_elements_at_top, is_swept
from ._batched import NotBatchable, batched, serialized
from ._bounded import ENTRIES, RECORD, Site, bounded
from ._divisions import write_out_divisions
from ._products import write_out_products
from ._rearrayed import rearrayed
from ._seeded import draws, seeded
from ._slopes import Slope, slopes
from .polish import declare_locals, eliminate_dead_code_of_tasks
from .tangent import Tangent, tangent
from .tree import (
    NotRewritable,
    annotate,
    begin_with_copies,
    drop_gradient_stores,
    drop_stores,
    flatten_structs,
    lift_scalars,
    loop_over_ranges,
    pass_fields,
    rename_parameters,
    serialize_loops,
    simplify_tree,
    split_gradients,
    store_results,
)

__all__ = [
    "ENTRIES",
    "NotBatchable",
    "NotRewritable",
    "RECORD",
    "Site",
    "Slope",
    "Tangent",
    "annotate",
    "batched",
    "begin_with_copies",
    "bounded",
    "draws",
    "pass_fields",
    "flat",
    "split_gradients",
    "has_aliases",
    "has_elements_at_top",
    "is_swept",
    "lift_scalars",
    "eliminate_dead_code_of_tasks",
    "loop_over_ranges",
    "rearrayed",
    "rename_parameters",
    "store_results",
    "declare_locals",
    "seeded",
    "serialize_loops",
    "serialized",
    "simplify_tree",
    "slopes",
    "tangent",
    "drop_stores",
    "drop_gradient_stores",
    "flatten_structs",
    "write_out_divisions",
    "write_out_products",
]
