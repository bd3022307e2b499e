"""Activations by tiny-cuda-nn's names, with its constants, in torch: differentiable any number of times.

`kernels/_activations.py` has the same for kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

_STEEP = 100.0  # LeakyReLU divides negative numbers by it
_SHARPNESS = 10.0  # how fast Squareplus and Softplus become ReLU


def apply(name: str, x: Tensor) -> Tensor:
    """An activation of `ACTIVATIONS`, element by element."""
    return ACTIVATIONS[name](x)


def _squareplus(x: Tensor) -> Tensor:
    z = _SHARPNESS * x
    return 0.5 * (z + (z * z + 4).sqrt()) / _SHARPNESS


def _softplus(x: Tensor) -> Tensor:
    # torch's own softplus becomes a straight line from 20 on, off by 2e-9 there; this is exact and never overflows.
    return functional.logsigmoid(-_SHARPNESS * x) / -_SHARPNESS


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "None": lambda x: x,
    "ReLU": torch.relu,
    "LeakyReLU": lambda x: functional.leaky_relu(x, 1 / _STEEP),
    "SiLU": functional.silu,
    "Exponential": torch.exp,
    "Sine": torch.sin,
    "Sigmoid": torch.sigmoid,
    "Squareplus": _squareplus,
    "Softplus": _softplus,
    "Tanh": torch.tanh,
}
"""The activations by name."""
