"""Gradients: the only file in this folder that touches a parameter's `.grad`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch


def gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient that the backward pass left."""
    return parameter.grad


def clear(parameters: Sequence[torch.Tensor], set_to_none: bool) -> None:
    """Set the gradients to None, or to 0."""
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad = parameter.grad.detach().zero_()


@contextlib.contextmanager
def lend_gradients(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> Iterator[None]:
    """Within, these gradients replace the parameters' own, and may be overwritten."""
    own = [parameter.grad for parameter in parameters]
    _put(parameters, gradients)
    try:
        yield
    finally:
        _put(parameters, own)


def _put(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    for parameter, given in zip(parameters, gradients, strict=True):
        parameter.grad = given
