"""Side by side: one test, run with this library and with Stannum itself.

A test that asks for `layers` and is marked `side_by_side` runs three times: with this library on each
engine, and with Stannum 0.9.1 on Taichi. So what the test expects is what Stannum does, and both are
held to it. Where Stannum is not installed (it comes with `pip install ".[test]"`) the third
run skips.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import tinsmith as ts

Refusals = type[ts.TinsmithError] | tuple[type[ts.TinsmithError], ...]
CPU = torch.device("cpu")

_STANNUM_WARNS = (
    r"ignore:\s*Some internal fields require gradients",  # that nobody updates them; here an optimizer can
    "ignore:The .grad attribute of a Tensor that is not a leaf",  # Taichi looks, when Stannum gives it such a tensor
)
side_by_side = pytest.mark.parametrize(
    ("engine", "layers"),
    [
        ("taichi", "tinsmith"),
        ("quadrants", "tinsmith"),
        pytest.param("taichi", "stannum", marks=[pytest.mark.filterwarnings(line) for line in _STANNUM_WARNS]),
    ],
    indirect=True,
)


def assert_refused(layers: ModuleType, error: Refusals, words: str, stannum: str = "") -> Any:
    """Assert that the block raises `error` with `words` here, and that Stannum raises an error with its own words."""
    if layers is ts:
        return pytest.raises(error, match=words)
    return pytest.raises(Exception, match=stannum or None)


def assert_agree(
    actual: Tensor | Sequence[Tensor], expected: Tensor | Sequence[Tensor], leaves: Sequence[Tensor]
) -> None:
    """Assert equal values, and equal gradients of `leaves` for random cotangents."""
    actual, expected = _several(actual), _several(expected)
    for mine, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, right)
    cotangents = [torch.randn_like(right) for right in expected]
    mine = torch.autograd.grad(actual, leaves, cotangents)
    right = torch.autograd.grad(expected, leaves, cotangents)
    for gradient, truth in zip(mine, right, strict=True):
        torch.testing.assert_close(gradient, truth)


def _several(tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)


def make_leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw a random tensor that requires a gradient."""
    return torch.randn(shape, dtype=dtype).requires_grad_()
