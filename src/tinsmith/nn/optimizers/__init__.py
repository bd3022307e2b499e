"""Optimizers from tiny-cuda-nn's configurations, and updates of a few rows only.

`make_optimizer` builds what a configuration describes from torch.optim (Adam, SGD) and pytorch_optimizer (Novograd,
Shampoo, Lookahead), in the wrappers that it lists; the result is a `torch.optim.Optimizer`. `use_averages` swaps in the
weights for inference. `RowOptimizer` updates the trained networks of an array, and leaves the others and their state
unchanged. `SelectiveAdam` does the same for rows of plain parameters; `replace_parameter` replaces a parameter whose
number of rows changes.
"""

from __future__ import annotations

from ._gradients import gradient
from ._make import make_optimizer
from ._resize import replace_parameter, require_resizable
from ._rows import RowOptimizer
from ._selective_adam import SelectiveAdam
from ._wrapper import averaged, use_averages

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
