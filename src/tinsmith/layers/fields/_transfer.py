"""Transfer of single fields: what one holds as a user gets it, and filling it from a user's tensor."""

from __future__ import annotations

import weakref
from typing import Literal

import torch

from ...bridge import Copy, Transfer, keep_order
from ._layer_field import LayerField


def read(one: LayerField, layer: str) -> torch.Tensor:
    """What a field holds now, as a user gets it; `layer` is for messages."""
    one.check_alive(layer)
    memory = torch.empty(one.memory_shape, dtype=one.facts.dtype, device=one.engine.device_type())
    _once(one, "store", memory)
    return one.from_memory(memory)


def fill(one: LayerField, tensor: torch.Tensor, layer: str) -> None:
    """Write a user's tensor, from any device, into a field; `layer` is for messages."""
    one.check_alive(layer)
    _once(one, "load", one.to_memory(tensor.detach().to(one.runs_on), layer).contiguous().resolve_neg())


_SINGLE: weakref.WeakKeyDictionary[LayerField, dict[str, Transfer]] = weakref.WeakKeyDictionary()
"""Transfers of single fields, which compile once."""


def _once(one: LayerField, kind: Literal["load", "store"], memory: torch.Tensor) -> None:
    transfers = _SINGLE.setdefault(one, {})
    if kind not in transfers:
        transfers[kind] = Transfer(one.engine, [Copy(kind, one.field, one.facts)])
    with keep_order(memory.device):
        transfers[kind].run([memory], is_serial=False)
