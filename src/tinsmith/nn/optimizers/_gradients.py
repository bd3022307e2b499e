"""Gradients: the one file here that touches a parameter's `.grad`, for an optimizer has to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch


def gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """What backward left there."""
    return parameter.grad


def clear(parameters: Sequence[torch.Tensor], set_to_none: bool) -> None:
    """Takes the gradients away, or makes them 0."""
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad = parameter.grad.detach().zero_()


@contextlib.contextmanager
def lend_gradients(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> Iterator[None]:
    """Within, these gradients stand in for the parameters' own, and may be overwritten."""
    own = [parameter.grad for parameter in parameters]
    _put(parameters, gradients)
    try:
        yield
    finally:
        _put(parameters, own)


def _put(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    for parameter, given in zip(parameters, gradients, strict=True):
        parameter.grad = given
