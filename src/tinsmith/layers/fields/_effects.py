"""Effects: reading and writing fields inside of torch's transforms.

What is made or given there has no memory that an engine could be given. A Function's forward pass runs outside of all
transforms, on plain tensors; these three do nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...tracing import has_legacy_batch, suspend_recording

Write = Callable[[Sequence[torch.Tensor]], None]


class Reading(torch.autograd.Function):
    """Tensors that a function gives. They have no gradient."""

    @staticmethod
    def forward(read: Callable[[], Sequence[torch.Tensor]]) -> tuple[torch.Tensor, ...]:
        with suspend_recording():
            return tuple(read())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        tensors = Reading.apply(*given)
        return tensors, (None,) * len(tensors)


class Writing(torch.autograd.Function):
    """Gives tensors to a function that writes them into fields. Of a batch, the last sample's stay, or the sum."""

    @staticmethod
    def forward(write: Write, is_sum: bool, *tensors: torch.Tensor) -> torch.Tensor:
        write(tensors)
        return torch.empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        write, is_sum, *tensors = given
        if info.batch_size == 0:
            return torch.empty(0), None
        chosen = []
        for one, dim in zip(tensors, in_dims[2:], strict=True):
            if dim is None:
                chosen.append(one * info.batch_size if is_sum else one)
            else:
                chosen.append(one.sum(dim) if is_sum else one.select(dim, -1))
        return Writing.apply(write, is_sum, *chosen), None


class Tracking(torch.autograd.Function):
    """Tensors as they are. In a backward pass a function gets their gradients on the way."""

    @staticmethod
    def forward(put: Write, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([one.view_as(one) for one in tensors])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.put = inputs[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if not has_legacy_batch(gradients):  # which know no rule of ours
            Writing.apply(ctx.put, True, *[one.detach() for one in gradients])
        return None, *gradients

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tuple([None if one is None else one.view_as(one) for one in tangents[1:]])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        return Tracking.apply(*given), in_dims[1:]
