"""The bridge: from a spec and a kernel to an ordinary, differentiable torch operation."""

from ._adjoint_source import adjoint_source, derive_spec
from ._baked_values import value_changed_between
from ._binding import BoundArguments, refuse_nested
from ._buffers import check_before_copy, is_null
from ._cache import Cache
from ._engine_hazards import EngineHazards
from ._examination import Examinable, Examination, Origin
from ._examples import example_inputs
from ._language import language
from ._large_memory import make_zeros
from ._launcher import Launcher
from ._layer_nodes import Layer, one_node
from ._links import FieldArray, Links
from ._make_op import chain, op
from ._named_fields import name_fields
from ._op import Op, Prepared
from ._op_examination import examine_call, examine_layer, lint_subject
from ._options import Adjoint, OpOptions, Races
from ._oracle import Answer, Cotangents, oracle
from ._pickling import Reference, reference_to
from ._prepared_passes import Backward, NotPrepared, PreparedPass, Stepping, prepare_stepping
from ._recipe import Recipe
from ._streams import keep_order
from ._torch_probes import torch_probes
from ._tracing import (
    SingleLevelFunction,
    apply_at_one_level,
    assume,
    constant_when_traced,
    has_forward_mode,
    has_modes,
    has_older_batch,
    has_saved_tensor_hooks,
    into_older_batch,
    is_fake,
    is_in_backward,
    is_linearized,
    is_plain,
    is_recorded,
    is_tracing,
    is_transformed,
    older_batches,
    one_level_down,
    outside_recording,
    outside_transforms,
    plain_apply,
    reshape_result,
    transforms_in_graph,
)
from ._transfer import Copy, ManagedLoads, Transfer
from ._watch import Note, current_watch, note_values, show_call, watch_calls
from .backward import RACE, refuse_race
from .operators import Family, define_operator, is_distributed, register_family, run_on_parts, set_parameter

__all__ = [
    "Adjoint",
    "Answer",
    "Backward",
    "BoundArguments",
    "Cache",
    "Copy",
    "Cotangents",
    "EngineHazards",
    "Examinable",
    "Examination",
    "Family",
    "FieldArray",
    "Launcher",
    "Layer",
    "Links",
    "ManagedLoads",
    "NotPrepared",
    "Note",
    "Op",
    "OpOptions",
    "Origin",
    "Prepared",
    "PreparedPass",
    "RACE",
    "Races",
    "Recipe",
    "Reference",
    "SingleLevelFunction",
    "Stepping",
    "Transfer",
    "adjoint_source",
    "apply_at_one_level",
    "assume",
    "chain",
    "check_before_copy",
    "constant_when_traced",
    "current_watch",
    "define_operator",
    "derive_spec",
    "examine_call",
    "examine_layer",
    "example_inputs",
    "has_forward_mode",
    "has_modes",
    "has_older_batch",
    "has_saved_tensor_hooks",
    "into_older_batch",
    "is_distributed",
    "is_fake",
    "is_in_backward",
    "is_linearized",
    "is_null",
    "is_plain",
    "is_recorded",
    "is_tracing",
    "is_transformed",
    "keep_order",
    "language",
    "lint_subject",
    "make_zeros",
    "name_fields",
    "note_values",
    "older_batches",
    "one_level_down",
    "one_node",
    "op",
    "oracle",
    "outside_recording",
    "outside_transforms",
    "plain_apply",
    "prepare_stepping",
    "reference_to",
    "refuse_nested",
    "refuse_race",
    "register_family",
    "reshape_result",
    "run_on_parts",
    "set_parameter",
    "show_call",
    "torch_probes",
    "transforms_in_graph",
    "value_changed_between",
    "watch_calls",
]
