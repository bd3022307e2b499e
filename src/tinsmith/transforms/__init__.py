"""Passes: from a kernel's tree or IR to another one, one a file."""

from ._aliases import flat, has_aliases, has_elements_at_top, is_swept
from ._batch import NotBatchable, batch_kernel, serialize_kernel
from ._bounds_checks import ENTRIES, RECORD, Site, insert_bounds_checks
from ._deadly import find_deadly
from ._divisions import write_out_divisions
from ._exchanges import exchange_values
from ._local_sums import sum_in_locals
from ._names import Names
from ._powers import nests_powers, separate_powers
from ._products import write_out_products
from ._rename_arrays import rename_arrays
from ._row_major import has_rows_in_loops, index_by_rows
from ._seed_random import draws, seed_random
from ._slopes import Slope, slopes
from ._strips import has_vector_loops, strip_functions
from .blocks import run_blocks_in_order, spread_blocks
from .polish import declare_locals, eliminate_dead_code
from .tangent import Tangent, tangent
from .tree import (
    NotRewritable,
    annotate,
    begin_with_copies,
    drop_gradient_stores,
    drop_results,
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
    "Names",
    "NotBatchable",
    "NotRewritable",
    "RECORD",
    "Site",
    "Slope",
    "Tangent",
    "annotate",
    "batch_kernel",
    "begin_with_copies",
    "declare_locals",
    "draws",
    "drop_gradient_stores",
    "drop_results",
    "drop_stores",
    "eliminate_dead_code",
    "exchange_values",
    "find_deadly",
    "flat",
    "flatten_structs",
    "has_aliases",
    "has_elements_at_top",
    "has_rows_in_loops",
    "has_vector_loops",
    "index_by_rows",
    "insert_bounds_checks",
    "is_swept",
    "lift_scalars",
    "loop_over_ranges",
    "nests_powers",
    "pass_fields",
    "rename_arrays",
    "rename_parameters",
    "run_blocks_in_order",
    "seed_random",
    "separate_powers",
    "serialize_kernel",
    "serialize_loops",
    "simplify_tree",
    "slopes",
    "split_gradients",
    "spread_blocks",
    "store_results",
    "strip_functions",
    "sum_in_locals",
    "tangent",
    "write_out_divisions",
    "write_out_products",
]
