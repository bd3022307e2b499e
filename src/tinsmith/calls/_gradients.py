"""Facts about gradients that eager calls and operators share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ._core import Call


def list_arrays(call: Call) -> tuple[str, ...]:
    """Return the names of the inputs, outputs and scratch of a call, in this order."""
    signature = call.core.signature
    return signature.arrays + signature.outputs + signature.scratch


def find_saved_names(call: Call, active: frozenset[str]) -> tuple[str, ...]:
    """Return the arrays whose values the backward pass reads, in the order of `list_arrays`."""
    if not active:
        return ()
    read = call.reverse.find_checked_reads(active)
    return tuple(name for name in list_arrays(call) if name in read)


def select_nondifferentiable(call: Call, made: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the outputs and scratch that have no gradient: integers, detached or auxiliary outputs, and all scratch.

    `made` are the tensors of outputs and scratch.
    """
    signature = call.core.signature
    names = signature.outputs + signature.scratch
    without = signature.detached | signature.auxiliary | frozenset(signature.scratch)
    pairs = zip(names, made, strict=True)
    return [tensor for name, tensor in pairs if name in without or not tensor.dtype.is_floating_point]
