"""The spec language: what an op takes and gives, with the dims of every array.

    spec   =  [items] "->" items              "x[n], k[m] -> y[n - m + 1]"

Text becomes values in `_parse`, rules between items are checked in `_agreement`, and the sizes
of one call are found in `_solve`. Nothing here knows tensors, kernels or engines.
"""

from ._arithmetic import Tree, tree_text
from ._dims import PROMISES, Anything, Arithmetic, Batch, Dim, DimSizes, Fixed, Item, Named, Rest, Spec
from ._functional import functional
from ._misfits import unexpected_keyword
from ._parse import DTYPES, parse
from ._sizing import Numbers, Size, Sizing, Symbol, fixed_sizing, sizing
from ._solve import Solution, solve

__all__ = [
    "Anything",
    "Arithmetic",
    "Batch",
    "DTYPES",
    "Dim",
    "DimSizes",
    "Fixed",
    "Item",
    "Named",
    "Numbers",
    "PROMISES",
    "Rest",
    "Size",
    "Sizing",
    "Solution",
    "Spec",
    "Symbol",
    "Tree",
    "fixed_sizing",
    "functional",
    "parse",
    "sizing",
    "solve",
    "tree_text",
    "unexpected_keyword",
]
