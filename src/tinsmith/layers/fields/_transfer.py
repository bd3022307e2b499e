"""Transfer of single fields: what one holds as a user gets it, and filling it from a user's tensor.

Wrappers such as FSDP leave a process with a part of a parameter, or with none of its memory, so a tensor is looked at
before its memory is read.
"""

from __future__ import annotations

import weakref
from typing import Any, Literal

import torch

from ..._errors import DeviceError, refusal
from ...calls.fields import Copy, Transfer
from ...torch_side import is_distributed
from ...tracing import is_fake, keep_order
from ._layer_field import LayerField


def read(one: LayerField, layer: str) -> torch.Tensor:
    """Return a field's content as a user gets it; `layer` is for messages."""
    one.check_alive(layer)
    memory = torch.empty(one.memory_shape, dtype=one.facts.dtype, device=one.engine.device_type())
    _once(one, "store", memory)
    return one.from_memory(memory)


def fill(one: LayerField, tensor: torch.Tensor, layer: str) -> None:
    """Write a user's tensor, from any device, into a field; `layer` is for messages.

    A DTensor is gathered, for which all of its processes must call this.

    Raises:
        DeviceError: the tensor has no memory.
    """
    one.check_alive(layer)
    if isinstance(tensor, torch.Tensor):
        tensor = whole(tensor.detach())
        if reason := explain_no_memory(tensor):
            rows = [("tensor", f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"), ("reason", reason)]
            remedy = "Pass a tensor with numbers, such as one made with `device='cpu'`."
            raise DeviceError(refusal(f"field `{one.name}` of {layer} cannot be filled from this tensor", rows, remedy))
        tensor = tensor.to(one.runs_on)
    _once(one, "load", one.to_memory(tensor, layer).contiguous().resolve_neg())


def is_whole(one: LayerField, tensor: torch.Tensor) -> bool:
    """Return True if this process holds all of a field's new content in `tensor`, and not a shard or a placeholder."""
    return tensor.shape == one.tensor_shape and not is_distributed([tensor]) and not explain_no_memory(tensor)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a DTensor, for which all of its processes must call this. Return other tensors as they are."""
    shared: Any = tensor
    return shared.full_tensor() if is_distributed([tensor]) else tensor


def explain_no_memory(tensor: torch.Tensor) -> str:
    """Return why a tensor has no numbers that could be read, or an empty string if it has."""
    if tensor.is_meta:
        return "it is on the meta device"
    if is_fake(tensor):
        return "it is one of FakeTensorMode"
    is_freed = tensor.layout is torch.strided and tensor.numel() > 0 and not tensor.untyped_storage().nbytes()
    return "its storage was freed" if is_freed else ""


_SINGLE: weakref.WeakKeyDictionary[LayerField, dict[str, Transfer]] = weakref.WeakKeyDictionary()
"""Transfers of single fields, which compile once."""


def _once(one: LayerField, kind: Literal["load", "store"], memory: torch.Tensor) -> None:
    transfers = _SINGLE.setdefault(one, {})
    if kind not in transfers:
        transfers[kind] = Transfer(one.engine, [Copy(kind, one.field, one.facts)])
    with keep_order(one.engine, memory.device, f"a copy of field `{one.name}`"):
        transfers[kind].run([memory], is_serial=False)
