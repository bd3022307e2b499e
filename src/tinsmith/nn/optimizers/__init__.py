"""Optimizers described by tiny-cuda-nn's configurations, and optimizers that update only some rows.

`make_optimizer` builds the optimizer of a configuration from torch.optim (Adam, SGD) and pytorch_optimizer (Novograd,
Shampoo, Lookahead), and adds the wrappers; the result is a `torch.optim.Optimizer`. `use_averages` swaps in the
weights for inference. `RowOptimizer` updates some networks of an array, and leaves the others and their state
unchanged. `SelectiveAdam` does the same for rows of plain parameters; `replace_parameter` replaces a parameter whose
number of rows changes.
"""

from __future__ import annotations

from ._gradients import gradient
from ._make import make_optimizer
from ._resize import replace_parameter, require_resizable
from ._rows import RowOptimizer
from ._selective_adam import SelectiveAdam
from ._wrappers import averaged, use_averages

__all__ = [
    "RowOptimizer",
    "SelectiveAdam",
    "averaged",
    "gradient",
    "make_optimizer",
    "replace_parameter",
    "require_resizable",
    "use_averages",
]
