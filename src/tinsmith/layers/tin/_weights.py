"""Weights: writes parameters into their fields after an optimizer's step, and values into parameters.

Each call of a layer writes its parameters into their fields, so training never sees an old
one. But a user may read a field after the last step, or run other kernels on it.

Between calls, FSDP leaves a process with a shard of a parameter. Gathering it takes all processes, and a hook
may run on one alone, so a hook writes only what this process holds whole.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..._errors import DeviceError, refusal
from ...torch_side import is_distributed
from ..fields import LayerField, is_whole


class Layer(Protocol):
    """What has weights in fields."""

    def refresh_fields(self) -> None:
        """Write the parameters that this process holds whole into their fields."""


_LAYERS: dict[int, tuple[weakref.ref[torch.nn.Parameter], weakref.ref[Any]]] = {}
"""Layers by the identity of their parameters, each with the parameter itself: identities are used again."""


def follow_parameters(layer: Layer, parameters: Iterable[torch.nn.Parameter]) -> None:
    """Register a layer whose weight fields are updated after each optimizer step on any of `parameters`."""
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
        layer.refresh_fields()


def check_accessible(one: LayerField, parameter: torch.Tensor, layer: str) -> None:
    """Raise DeviceError for a parameter that this process has only a shard of, or no numbers of.

    A DTensor is accessible: its processes can gather it.
    """
    if is_distributed([parameter]) or is_whole(one, parameter):
        return
    rows = [("field", str(one)), ("got", f"{tuple(parameter.shape)} {parameter.dtype} on {parameter.device}")]
    if parameter.is_meta:
        words = f"the weight `{one.name}` of {layer} is on the meta device"
        raise DeviceError(refusal(words, rows, "Call `model.to_empty(device=...)`, then set or load the weights."))
    words = f"this process has only a shard of the weight `{one.name}` of {layer}"
    remedy = "Call this on all processes, inside `FullyShardedDataParallel.summon_full_params(model)`."
    raise DeviceError(refusal(words, rows, remedy))
