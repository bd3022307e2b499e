"""Passes: from a kernel's tree or IR to another one, one a file."""

from ._aliases import flat, has_aliases, has_elements_at_top, is_swept
from ._batched import NotBatchable, batched, serialized
from ._bounded import ENTRIES, RECORD, Site, bounded
from ._divisions import write_out_divisions
from ._products import write_out_products
from ._rearrayed import rearrayed
from ._seeded import draws, seeded
from ._slopes import Slope, slopes
from ._strips import strip_functions
from .polish import pruned_tasks, scoped
from .tangent import Tangent, tangent
from .tree import (
    NotRewritable,
    annotated,
    begun_as_copies,
    fielded,
    gradients_split,
    lifted,
    ranged,
    renamed,
    results_stored,
    serial,
    simplified,
    unstored,
    without_gradient_stores,
    without_structs,
)

__all__ = [
    "ENTRIES",
    "NotBatchable",
    "NotRewritable",
    "RECORD",
    "Site",
    "Slope",
    "Tangent",
    "annotated",
    "batched",
    "begun_as_copies",
    "bounded",
    "draws",
    "fielded",
    "flat",
    "gradients_split",
    "has_aliases",
    "has_elements_at_top",
    "is_swept",
    "lifted",
    "pruned_tasks",
    "ranged",
    "rearrayed",
    "renamed",
    "results_stored",
    "scoped",
    "seeded",
    "serial",
    "serialized",
    "simplified",
    "slopes",
    "strip_functions",
    "tangent",
    "unstored",
    "without_gradient_stores",
    "without_structs",
    "write_out_divisions",
    "write_out_products",
]
