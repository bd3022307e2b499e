"""Weights: writes parameters into their fields after an optimizer's step.

Each call of a layer writes its parameters into their fields, so training never sees an old
one. But a user may read a field after the last step, or run other kernels on it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Layer(Protocol):
    """What has weights in fields."""

    def write_weights(self) -> None:
        """Write all parameters into their fields."""


_LAYERS: dict[int, tuple[weakref.ref[torch.nn.Parameter], weakref.ref[Any]]] = {}
"""Layers by the identity of their parameters, each with the parameter itself: identities are used again."""


def follow(layer: Layer, parameters: Iterable[torch.nn.Parameter]) -> None:
    """From now on an optimizer that steps any of `parameters` has them written into their fields."""
    _start()
    for parameter in parameters:
        key = id(parameter)
        _LAYERS[key] = (weakref.ref(parameter, lambda _, key=key: _LAYERS.pop(key, None)), weakref.ref(layer))


@functools.cache
def _start() -> None:
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    layers: dict[int, Layer] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            reference, layer = _LAYERS.get(id(parameter), (None, None))
            # Python gives the `id` of a parameter that is gone to a new object, so the parameter itself is compared
            # too.
            owner = layer() if layer is not None and reference is not None and reference() is parameter else None
            if owner is not None:
                layers[id(owner)] = owner
    for layer in layers.values():
        layer.write_weights()
