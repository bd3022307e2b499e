"""The activation functions of tiny-cuda-nn in torch, under its names and with its constants.

They are differentiable any number of times. Half precision is computed in float32 and rounded once, at the end. torch's
own functions already do so.

`kernels/_activations.py` has the same functions for kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ._precision import round_to, widen

_STEEP = 100.0  # LeakyReLU divides negative numbers by it
_SHARPNESS = 10.0  # how fast Squareplus and Softplus become ReLU


def apply(name: str, x: Tensor) -> Tensor:
    """Apply the activation function with this name, a key of `ACTIVATIONS`, to each element of a tensor."""
    return ACTIVATIONS[name](x)


def _squareplus(x: Tensor) -> Tensor:
    z = _SHARPNESS * widen(x)
    return round_to(0.5 * (z + (z * z + 4).sqrt()) / _SHARPNESS, x.dtype)


def _softplus(x: Tensor) -> Tensor:
    # torch's own softplus becomes a straight line from 20 on, off by 2e-9 there; this is exact and never overflows.
    return round_to(functional.logsigmoid(-_SHARPNESS * widen(x)) / -_SHARPNESS, x.dtype)


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
"""The activation functions by name."""
