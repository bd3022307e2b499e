"""Optimizers from tiny-cuda-nn's configurations, and updates of a few rows only.

`make_optimizer` builds what a configuration describes out of torch.optim (Adam, SGD) and
pytorch_optimizer (Novograd, Shampoo, Lookahead), wrapped as often as it says; what comes out is a
`torch.optim.Optimizer`. `use_averages` swaps in the weights meant for inference. `RowOptimizer` updates
those networks of an array that were trained, and leaves the others and their state as they were. `SelectiveAdam` does
so for rows of plain parameters; `replace_parameter` follows a parameter whose rows come and go.
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
