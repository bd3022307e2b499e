"""Copies of what fields hold: of one as a user gets it, filling it from a user's tensor, and of many at once.

Wrappers such as FSDP leave a process with a part of a parameter, or with none of its memory, so a tensor is looked at
before its memory is read.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Literal

import torch

from ..._errors import DeviceError, refusal
from ...calls import make_recycled
from ...calls.fields import Copy, Transfer
from ...engines import Engine, gradient_field
from ...torch_side import is_distributed
from ...tracing import is_fake, keep_order
from ._layer_field import LayerField

SHARED = 1 << 20
"""Bytes from which it pays to ask whether a field has changed since the call before."""


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


class FieldCopies:
    """Copies what fields and their gradients hold, and puts it back, in one transfer for any number of fields."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._transfers: dict[tuple[Any, ...], Transfer] = {}

    def take(self, fields: Sequence[LayerField], graded: Sequence[LayerField] = ()) -> list[torch.Tensor]:
        """Return what fields hold, and then what the gradients of `graded` hold."""
        kinds = [(one.facts.shape + one.facts.element, one.facts.dtype, one.runs_on) for one in (*fields, *graded)]
        held = [make_recycled(shape, dtype, torch.device(device)) for shape, dtype, device in kinds]
        self._run("store", fields, graded, held)
        return held

    def put(
        self, fields: Sequence[LayerField], contents: Sequence[torch.Tensor], graded: Sequence[LayerField] = ()
    ) -> None:
        """Write contents: the first into `fields`, the rest into the gradients of `graded`."""
        self._run("restore", fields, graded, [one.detach().contiguous().resolve_neg() for one in contents])

    def _run(
        self, kind: Any, fields: Sequence[LayerField], graded: Sequence[LayerField], tensors: Sequence[torch.Tensor]
    ) -> None:
        if not tensors:
            return
        key = kind, *[one.facts.key for one in fields], None, *[one.facts.key for one in graded]
        if key not in self._transfers:
            copies = [Copy(kind, one.field, one.facts) for one in fields]
            copies += [Copy(kind, gradient_field(one.field), one.gradient_facts) for one in graded]
            self._transfers[key] = Transfer(self._engine, copies)
        with keep_order(self._engine, tensors[0].device, "a copy of fields"):
            self._transfers[key].run(tensors, is_serial=False)


def share_unchanged(tensor: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
    """Return the copy of a field that the last call made in place of an equal, large one of this call."""
    is_same = before is not None and tensor.nbytes >= SHARED and torch.equal(tensor, before)
    return before if before is not None and is_same else tensor
