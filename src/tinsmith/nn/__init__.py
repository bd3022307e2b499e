"""Neural networks, encodings, losses and optimizers, described by tiny-cuda-nn's configurations.

`NetworkWithInputEncoding`, `Network` and `Encoding` correspond to tiny-cuda-nn's modules, on the CPU and on CUDA.
`create_from_config` creates model, loss and optimizer from one of its JSON files.
"""

from __future__ import annotations

from ._checkpoint import read_checkpoint, write_checkpoint
from ._create import Created, create_from_config
from ._trainer import Trainer
from .config import read
from .encodings import Encoding
from .losses import Loss, make_loss
from .networks import Activation, Network, NetworkArray, NetworkWithInputEncoding, stack, unstack
from .optimizers import RowOptimizer, averaged, make_optimizer, use_averages

__all__ = [
    "Activation",
    "Created",
    "Encoding",
    "Loss",
    "Network",
    "NetworkArray",
    "NetworkWithInputEncoding",
    "RowOptimizer",
    "Trainer",
    "averaged",
    "create_from_config",
    "make_loss",
    "make_optimizer",
    "read",
    "read_checkpoint",
    "stack",
    "unstack",
    "use_averages",
    "write_checkpoint",
]
