"""Comparing an op with its slow twin: values, and the gradients of all floating inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
    torch.float32: {"rtol": 2e-4, "atol": 2e-5},
    torch.float16: {"rtol": 5e-3, "atol": 5e-3},
}


def list_tensors(result: Any) -> tuple[torch.Tensor, ...]:
    """Return one output or several, as a tuple."""
    return tuple(result) if isinstance(result, tuple) else (result,)


def select_differentiable(values: Any) -> list[torch.Tensor]:
    """Return the floating tensors among arguments or outputs."""
    return [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]


def make_leaves(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments with each floating tensor replaced by a new leaf that requires a gradient."""
    return tuple(
        v.detach().clone().requires_grad_() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
        for v in inputs
    )


def draw_cotangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return an uneven cotangent for each output, equal for equal shapes; works inside vmap too."""
    return [torch.cos(1.7 * torch.arange(o.numel()).to(o) + k).reshape(o.shape) + 0.3 for k, o in enumerate(outputs)]


def assert_close(ours: Any, twin: Any, **tolerance: float) -> None:
    """Assert equal shapes, dtypes and, within what the dtype can hold, values."""
    ours, twin = list_tensors(ours), list_tensors(twin)
    assert len(ours) == len(twin)
    for mine, theirs in zip(ours, twin, strict=True):
        wanted = tolerance or TOLERANCE.get(theirs.dtype, {"rtol": 0.0, "atol": 0.0})
        torch.testing.assert_close(mine, theirs, **wanted)


def compute_gradients(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Compute the gradients of all floating inputs, for random cotangents of all floating outputs."""
    fresh = make_leaves(inputs)
    outputs = select_differentiable(list_tensors(function(*fresh)))
    return torch.autograd.grad(outputs, select_differentiable(fresh), draw_cotangents(outputs))


def assert_same_values_and_gradients(
    ours: Callable[..., Any], twin: Callable[..., Any], inputs: Sequence[Any], **tolerance: float
) -> None:
    """Assert that an op computes what its twin computes, forward and backward."""
    assert_close(ours(*inputs), twin(*inputs), **tolerance)
    if select_differentiable(inputs):
        assert_close(compute_gradients(ours, inputs), compute_gradients(twin, inputs), **tolerance)
