"""Batches: one more batch dimension for a call, forward and backward, in one launch.

A call has at most one batch dimension, in front; a further one is merged with it. Tensors
that only one of the two runs over are expanded, so that all batched tensors agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ._core import Call
from ._gradients import saved_names
from ._packing import BackwardCall, packed_backward, packed_forward


def forward_over_batch(
    size: int, call: Call, inputs: Sequence[torch.Tensor], dims: Sequence[int | None]
) -> list[torch.Tensor]:
    """Outputs and scratch of a call over a batch of `size`, which comes first in each of them."""
    names = call.core.signature.arrays
    wide = _wide(size, call, frozenset(n for n, dim in zip(names, dims, strict=True) if dim is not None))
    tensors = [
        _widen(size, call, tensor, dim, name in wide.batched, name in call.batched)
        for name, tensor, dim in zip(names, inputs, dims, strict=True)
    ]
    return _split(size, call, torch.ops.tinsmith.launch(*packed_forward(wide, tensors)))


def backward_over_batch(
    size: int, asked: BackwardCall, tensors: Sequence[torch.Tensor], dims: Sequence[int | None]
) -> list[torch.Tensor]:
    """Gradients of the active inputs over a batch, each sample with its own.

    `tensors` are the saved values and then the given cotangents. An active input counts as batched
    even where it is not, because its gradient is.
    """
    call, active, given = asked
    signature = call.core.signature
    saved = saved_names(call, active)
    owners = (*saved, *given)
    made = frozenset(signature.outputs + signature.scratch)
    moved = frozenset(owner for owner, dim in zip(owners, dims, strict=True) if dim is not None)
    wide = _wide(size, call, (moved & frozenset(signature.arrays)) | active)
    if not frozenset(saved).issuperset(saved_names(wide, active)):
        # The kernel that runs the whole batch reads what the call has not kept; that of one sample does not.
        wide = replace(wide, is_apart=True)
    widened = [
        _widen(size, call, tensor, dim, owner in wide.batched or owner in made, owner in call.batched or owner in made)
        for tensor, dim, owner in zip(tensors, dims, owners, strict=True)
    ]
    values = dict(zip(saved, widened[: len(saved)], strict=True))
    read = [values[name] for name in saved_names(wide, active)]
    cotangents = dict(zip(given, widened[len(saved) :], strict=True))
    arguments = packed_backward(wide, active, read, [cotangents.get(name) for name in signature.outputs])
    return _split(size, call, torch.ops.tinsmith.launch_backward(*arguments))


def _wide(size: int, call: Call, new: frozenset[str]) -> Call:
    """The call over a batch that is `size` times the one it may have already."""
    batched = call.core.together(new | call.batched)
    return call.with_batch(size * (1 if call.batch is None else call.batch), batched)


def _widen(size: int, call: Call, tensor: torch.Tensor, dim: int | None, is_wide: bool, is_old: bool) -> torch.Tensor:
    """A tensor with its new batch dimension in front, merged with the one it may have already."""
    if not is_wide:
        return tensor
    moved = tensor.movedim(dim, 0) if dim is not None else tensor.expand(size, *tensor.shape)
    if call.batch is None:
        return moved.contiguous()
    if not is_old:
        moved = moved.unsqueeze(1).expand(size, call.batch, *moved.shape[1:])
    return moved.reshape(size * call.batch, *moved.shape[2:]).contiguous()


def _split(size: int, call: Call, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Results with their flat batch dimension taken apart again."""
    if call.batch is None:
        return list(results)
    return [tensor.reshape(size, call.batch, *tensor.shape[1:]) for tensor in results]
