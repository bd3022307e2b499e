"""Differentiable colors that depend on the direction, by spherical harmonics."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import kernels
from ..._errors import ArgumentError, ShapeError, refusal
from ..._integers import read_integer
from .._ops import cast_to_single, get_op, register_maker
from .._packed import check_floats
from .._rule import steady
from ._checks import is_ordered, number_rows, require_last, require_shape

MOST_DEGREE = 4


def spherical_harmonics(
    degrees_to_use: int,
    dirs: Tensor,
    coeffs: Tensor,
    masks: Tensor | None = None,
    *,
    engine: str | None = None,
) -> Tensor:
    """Evaluate colors along directions from coefficients of real spherical harmonics.

    With y the harmonics of the normalized direction, as in `reference.spherical_harmonics`:

        color_c = sum over k < (degrees_to_use + 1)^2 of y_k coeffs_kc

    Args:
        degrees_to_use: 0 to 4; coefficients of higher degrees are not read.
        dirs: (..., 3), of any length but 0. Differentiable.
        coeffs: (..., k, c), at least (degrees_to_use + 1)^2 of them; c is 3 for colors. Differentiable.
        masks: (...), bool; if it is False, the color and its gradients are 0.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        (..., c). `rasterization` adds 0.5 and clamps negative values to 0.

    Raises:
        ArgumentError: the degree is not one of 0 to 4.
        ShapeError: the tensors do not fit each other, or there are too few coefficients.

    Example:
        >>> coeffs = torch.ones(1, 1, 3)
        >>> ts.render.gaussians.spherical_harmonics(0, torch.tensor([[0.0, 0.0, 2.0]]), coeffs)
        tensor([[0.2821, 0.2821, 0.2821]])
    """
    dirs, coeffs = cast_to_single(dirs), cast_to_single(coeffs)
    check_floats("spherical_harmonics", {"dirs": dirs, "coeffs": coeffs})
    degrees_to_use = require_degree("spherical_harmonics", "degrees_to_use", degrees_to_use, coeffs)
    require_last("spherical_harmonics", "dirs", dirs, "[..., 3]", (3,))
    require_shape("spherical_harmonics", "coeffs", coeffs, "[..., k, c]", (*dirs.shape[:-1], *coeffs.shape[-2:]))
    if masks is not None:
        require_shape("spherical_harmonics", "masks", masks, "[...]", dirs.shape[:-1])
        masks = masks.reshape(-1)
    flat = dirs.reshape(-1, 3)
    colors = evaluate(degrees_to_use, flat, coeffs.flatten(0, -3), number_rows(flat), masks, engine)
    return colors.view(*dirs.shape[:-1], coeffs.shape[-1])


def evaluate(
    degree: int, directions: Tensor, coefficients: Tensor, rows: Tensor, masks: Tensor | None, engine: str | None
) -> Tensor:
    """Evaluate colors, [p, c], of directions [p, 3].

    Args:
        degree: the degree of the harmonics.
        directions: [p, 3], of any length but 0.
        coefficients: [g, k, c].
        rows: [p], int32, the row of `coefficients` for each direction.
        masks: [p], bool; False gives 0. None for all True.
        engine: the engine.
    """
    op = get_op(
        "gaussian_harmonics", engine, directions, degree, coefficients.shape[-1], masks is not None, is_ordered()
    )
    if masks is None:
        masks = torch.empty(0, dtype=torch.bool, device=directions.device)
    return op(directions, coefficients, rows, masks)


def require_degree(function: str, name: str, given: object, coefficients: Tensor) -> int:
    """Return a degree. Raise ArgumentError unless it is 0 to 4, and ShapeError if there are too few coefficients."""
    degree = read_integer(given)
    if degree is None or not 0 <= degree <= MOST_DEGREE:
        words = f"`{name}` of `{function}` must be an integer from 0 to {MOST_DEGREE}"
        raise ArgumentError(refusal(words, [("got", repr(given))]))
    if coefficients.ndim < 2 or coefficients.shape[-2] < (degree + 1) ** 2:
        rows = [("got", str(tuple(coefficients.shape)))]
        rows += [("expected", f"[..., k, c] with k at least {(degree + 1) ** 2}")]
        remedy = f"A degree of {degree} has {(degree + 1) ** 2} coefficients: pass more, or a lower `{name}`."
        raise ShapeError(refusal(f"`{function}` has too few coefficients", rows, remedy))
    return degree


@register_maker("gaussian_harmonics")
def _make_op(lang: Any, fp: str, degree: int, channels: int, masked: bool, ordered: bool) -> Any:
    kernel = kernels.gaussian_harmonics(lang, fp=fp, degree=degree, channels=channels, masked=masked)
    spec = f"directions[p, 3], coefficients[g, k, {channels}], rows[p]: i32, masks[m]: u1 -> colors[p, {channels}]"
    return steady(spec, kernel, adjoint="source", deterministic=ordered, name="gaussian_harmonics")
