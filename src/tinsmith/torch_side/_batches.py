"""Batches: runs a call over one more batch dimension, forward and backward, in one launch.

A call has at most one batch dimension, which comes first; a further one is merged with it. A tensor that has only one
of the two is expanded over the other, so that all batched tensors agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ..calls import BackwardCall, Call, check_before_copy
from ..tracing import reshape_result


def run_forward_over_batch(
    size: int,
    call: Call,
    inputs: Sequence[torch.Tensor],
    dims: Sequence[int | None],
    state: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Run the forward operator of a call over a further batch of `size` samples, in one launch.

    Args:
        size: the number of samples.
        call: the call of one sample, which may have a batch dimension of its own.
        inputs: the input arrays.
        dims: the batch dimension of each input, None if it has none.
        state: the state of the Python values and fields that the call has to use, or None.

    Returns:
        What the forward operator returns. The batch is the first dimension of outputs and scratch.
    """
    signature = call.core.signature
    names = signature.arrays
    wide = _widen_call(size, call, frozenset(n for n, dim in zip(names, dims, strict=True) if dim is not None))
    tensors = [
        _widen_tensor(size, call, name, tensor, dim, name in wide.batched, name in call.batched)
        for name, tensor, dim in zip(names, inputs, dims, strict=True)
    ]
    results = call.core.operators.results(wide, tensors, state)
    count = len(signature.outputs) + len(signature.scratch)
    return [*_split(size, call, results[:count]), *results[count:]]


def run_backward_over_batch(size: int, asked: BackwardCall, dims: Sequence[int | None]) -> list[torch.Tensor]:
    """Return the gradients of the active inputs over a batch of `size` samples, separate for each sample.

    `dims` are the batch dimensions of the saved values, then of the cotangents. Each active input counts as batched
    even if it is not, because its gradient is.
    """
    call, active = asked.call, asked.active
    signature = call.core.signature
    owners = (*asked.saved, *asked.cotangents)
    made = frozenset(signature.allocations)
    moved = frozenset(owner for owner, dim in zip(owners, dims, strict=True) if dim is not None)
    wide = _widen_call(size, call, (moved & frozenset(signature.arrays)) | active)
    if not asked.saved.keys() >= {*wide.find_saved_names(active)}:
        # The kernel that runs the whole batch reads what the call has not kept; that of one sample does not.
        wide = replace(wide, is_apart=True)
    tensors = (*asked.saved.values(), *asked.cotangents.values())
    widened = [
        _widen_tensor(
            size,
            call,
            owner,
            tensor,
            dim,
            owner in wide.batched or owner in made,
            owner in call.batched or owner in made,
        )
        for tensor, dim, owner in zip(tensors, dims, owners, strict=True)
    ]
    values = dict(zip(asked.saved, widened[: len(asked.saved)], strict=True))
    read = {name: values[name] for name in wide.find_saved_names(active)}
    cotangents = dict(zip(asked.cotangents, widened[len(asked.saved) :], strict=True))
    gradients = call.core.operators.launch_backward(BackwardCall(wide, active, read, cotangents, asked.state))
    return _split(size, call, gradients)


def _widen_call(size: int, call: Call, new: frozenset[str]) -> Call:
    """Return the call over a batch that is `size` times the batch that it may already have.

    `new` are the arrays that have the new batch dimension.
    """
    batched = call.core.propagate_batch(new | call.batched)
    return call.with_batch(size * (1 if call.batch is None else call.batch), batched)


def _widen_tensor(
    size: int, call: Call, name: str, tensor: torch.Tensor, dim: int | None, is_wide: bool, is_old: bool
) -> torch.Tensor:
    """Move a tensor's new batch dimension to the front and merge it with the batch dimension that it may already have.

    Args:
        size: the number of samples of the new batch.
        call: the call before the new batch is added.
        name: the array's name, for messages.
        tensor: the tensor.
        dim: its new batch dimension; None to expand it over the new batch.
        is_wide: whether the array has a batch dimension afterwards. If not, it is returned as it is.
        is_old: whether it has the call's earlier batch dimension. If not, it is expanded over that one too.
    """
    if not is_wide:
        return tensor
    moved = tensor.movedim(dim, 0) if dim is not None else tensor.expand(size, *tensor.shape)
    if call.batch is not None and not is_old:
        moved = moved.unsqueeze(1).expand(size, call.batch, *moved.shape[1:])
    check_before_copy(f"array `{name}` of op `{call.core.signature.op}`", moved)
    if call.batch is None:
        return moved.contiguous()
    return moved.reshape(size * call.batch, *moved.shape[2:]).contiguous()


def _split(size: int, call: Call, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Split the merged batch dimension of the results into the new batch and the call's earlier one."""
    if call.batch is None:
        return list(results)
    return [reshape_result(tensor, (size, call.batch, *tensor.shape[1:])) for tensor in results]
