"""Access to gradients: the only file in this folder that touches a parameter's `.grad`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


def gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient that the backward pass stored in a parameter, or None."""
    return parameter.grad


def clear(parameters: Sequence[torch.Tensor], set_to_none: bool) -> None:
    """Set the gradients of parameters to None, or else to 0."""
    for parameter in parameters:
        if set_to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad = parameter.grad.detach().zero_()


def evaluate_closure(closure: Callable[[], Any] | None) -> Any:
    """Return the loss that the closure of an optimizer's step computes; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


@contextlib.contextmanager
def lend_gradients(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> Iterator[None]:
    """Enter a context in which the parameters have these gradients, which may be overwritten, instead of their own."""
    own = [parameter.grad for parameter in parameters]
    _put(parameters, gradients)
    try:
        yield
    finally:
        _put(parameters, own)


def _put(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> None:
    for parameter, given in zip(parameters, gradients, strict=True):
        parameter.grad = given
