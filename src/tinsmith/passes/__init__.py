"""Passes: from a kernel's IR to another one, one a file."""

from ._aliases import flat, has_aliases, has_elements_at_top, is_swept
from ._batch import NotBatchable, batch_kernel, serialize_kernel
from ._bits import Part, check_bits
from ._bounds_checks import ENTRIES, RECORD, Site, insert_bounds_checks
from ._deadly import find_deadly
from ._decompositions import adjoint_of, tangent_of
from ._divisions import write_out_divisions
from ._evaluate import can_evaluate, evaluate, extent, formula_text
from ._exact import Exact
from ._exchanges import exchange_values
from ._local_sums import sum_in_locals
from ._most_runs import most_runs
from ._one_thread import run_on_one_thread
from ._pipelines import (
    BATCH,
    CPU,
    ENGINE,
    FORWARD,
    GENERATED,
    GUARDED,
    ON_ONE_THREAD,
    PASS_NAMES,
    PIPELINES,
    Pass,
    PassOptions,
    clean_up_adjoint,
    clean_up_tangent,
    generate_adjoint,
    generate_tangent,
    run_passes,
    run_pipeline,
)
from ._powers import nests_powers, separate_powers
from ._products import write_out_products
from ._rename_arrays import rename_arrays, with_names
from ._seed_random import draws, seed_random
from ._slots import SlotAssignment, assign_slots, place_of, replace_statements, trips_of
from .strips import (
    FUNCTIONS,
    LIMITS,
    POWER,
    assign,
    at_line,
    by_arithmetic,
    has_engine_vector,
    has_rows_in_loops,
    has_vector_loops,
    index_by_rows,
    is_elementwise,
    is_vector,
    moves,
    run_lanes,
    split_edges,
    strip_functions,
    with_vectors,
)

__all__ = [
    "BATCH",
    "CPU",
    "ENGINE",
    "ENTRIES",
    "Exact",
    "FORWARD",
    "FUNCTIONS",
    "GENERATED",
    "GUARDED",
    "LIMITS",
    "NotBatchable",
    "ON_ONE_THREAD",
    "PASS_NAMES",
    "PIPELINES",
    "POWER",
    "Part",
    "Pass",
    "PassOptions",
    "RECORD",
    "Site",
    "SlotAssignment",
    "adjoint_of",
    "assign",
    "assign_slots",
    "at_line",
    "batch_kernel",
    "by_arithmetic",
    "can_evaluate",
    "check_bits",
    "clean_up_adjoint",
    "clean_up_tangent",
    "draws",
    "evaluate",
    "exchange_values",
    "extent",
    "find_deadly",
    "flat",
    "formula_text",
    "generate_adjoint",
    "generate_tangent",
    "has_aliases",
    "has_elements_at_top",
    "has_engine_vector",
    "has_rows_in_loops",
    "has_vector_loops",
    "index_by_rows",
    "insert_bounds_checks",
    "is_elementwise",
    "is_swept",
    "is_vector",
    "most_runs",
    "moves",
    "nests_powers",
    "place_of",
    "rename_arrays",
    "replace_statements",
    "run_lanes",
    "run_on_one_thread",
    "run_passes",
    "run_pipeline",
    "seed_random",
    "separate_powers",
    "serialize_kernel",
    "split_edges",
    "strip_functions",
    "sum_in_locals",
    "tangent_of",
    "trips_of",
    "with_names",
    "with_vectors",
    "write_out_divisions",
    "write_out_products",
]
