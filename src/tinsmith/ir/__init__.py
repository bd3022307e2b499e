"""The IR: kernels as data. Its grammar is in `_nodes`.

The text of kernels is loaded when it is first used: no call needs it.
"""

import typing

import lazy_loader

from . import _nodes as nodes
from . import _operators as operators
from . import _types as types
from . import _walk as walk
from ._affine import (
    AffineIndex,
    DependenceQuery,
    EnclosingLoop,
    IsInvariant,
    PartialIndexMap,
    combine,
    each_moves_an_axis,
    extents,
    may_overwrite,
    never_alias,
)
from ._algebra import (
    BLOCK_SIZE,
    FALSE,
    ONE,
    TRUE,
    ZERO,
    both,
    cast,
    compare,
    constant,
    either,
    integer,
    is_constant,
    is_not_zero,
    iteration_number,
    minus,
    negate,
    number,
    opposite,
    or_else,
    over,
    plus,
    shift_by,
    straight_through,
    times,
)
from ._cells import with_cells
from ._decompositions import PARTS, Part, parts_of, side_of
from ._finish import finish_pass, is_observed, observe_passes
from ._names import Names
from ._operators import AtomicOperator, Operator, VoteOperator
from ._refusals import (
    DIVISION_BY_ZERO,
    IN_A_PARALLEL_LOOP,
    REWRITE_LINE,
    RUN_IN_ORDER,
    Deadly,
    Misfit,
    NotANumber,
    NotCovered,
    Race,
)
from ._types import Defaults, Type
from ._verify import InvalidKernel, verify

if typing.TYPE_CHECKING:
    from ._parser import parse_ir
    from ._printer import print_ir
    from ._tokens import TextError

__getattr__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "_parser": ["parse_ir"],
        "_printer": ["print_ir"],
        "_tokens": ["TextError"],
    },
)[0]

__all__ = [
    "AffineIndex",
    "AtomicOperator",
    "BLOCK_SIZE",
    "DIVISION_BY_ZERO",
    "Deadly",
    "Defaults",
    "DependenceQuery",
    "EnclosingLoop",
    "FALSE",
    "IN_A_PARALLEL_LOOP",
    "InvalidKernel",
    "IsInvariant",
    "Misfit",
    "Names",
    "NotANumber",
    "NotCovered",
    "ONE",
    "Operator",
    "PARTS",
    "Part",
    "PartialIndexMap",
    "REWRITE_LINE",
    "RUN_IN_ORDER",
    "Race",
    "TRUE",
    "TextError",
    "Type",
    "VoteOperator",
    "ZERO",
    "both",
    "cast",
    "combine",
    "compare",
    "constant",
    "each_moves_an_axis",
    "either",
    "extents",
    "finish_pass",
    "integer",
    "is_constant",
    "is_not_zero",
    "is_observed",
    "iteration_number",
    "may_overwrite",
    "minus",
    "negate",
    "never_alias",
    "nodes",
    "number",
    "observe_passes",
    "operators",
    "opposite",
    "or_else",
    "over",
    "parse_ir",
    "parts_of",
    "plus",
    "print_ir",
    "shift_by",
    "side_of",
    "straight_through",
    "times",
    "types",
    "verify",
    "walk",
    "with_cells",
]
