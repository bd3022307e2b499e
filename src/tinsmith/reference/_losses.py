"""The reference of losses, one element at a time: values and gradients by the formulas in tiny-cuda-nn's kernels."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

_Pair = tuple[float, float]  # an element's value, and its derivative with respect to the prediction
_EPSILON = 1e-2


def loss(
    otype: str, prediction: torch.Tensor, target: torch.Tensor, data_pdf: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute a loss and its gradient with respect to the prediction, element by element in float64.

    Args:
        otype: the name of the loss: see `tinsmith.nn.Loss`, which has the formulas.
        prediction: (sample, channel).
        target: (sample, channel).
        data_pdf: (sample, channel), the density that each element was drawn with; None: 1 everywhere.

    Returns:
        The loss, a 0-d tensor; its gradient, (sample, channel). Neither is differentiable.

    Example:
        >>> import torch
        >>> from tinsmith import reference
        >>> reference.loss("L2", torch.tensor([[3.0]]), torch.tensor([[1.0]]))
        (tensor(4., dtype=torch.float64), tensor([[4.]], dtype=torch.float64))
    """
    total, gradient = 0.0, torch.zeros_like(prediction, dtype=torch.float64)
    for s, row in enumerate(prediction.tolist()):
        for c, p in enumerate(row):
            t = target[s, c].item()
            q = 1.0 if data_pdf is None else data_pdf[s, c].item()
            value, slope = _ELEMENTS[otype](p, t, q, row)
            total += value / q / prediction.numel()
            gradient[s, c] = slope / q / prediction.numel()
    return torch.tensor(total, dtype=torch.float64), gradient


def _evaluate_absolute(difference: float, scale: float) -> _Pair:
    return abs(difference) * scale, math.copysign(scale, difference)


def _evaluate_square(difference: float, scale: float) -> _Pair:
    return difference**2 * scale, 2 * difference * scale


def _compute_luminance(row: list[float]) -> float:
    r, g, b = row[:3]
    if len(row) >= 6:
        r, g, b = r + row[3], g + row[4], b + row[5]
    return 0.299 * r + 0.587 * g + 0.114 * b


_ELEMENTS: dict[str, Callable[[float, float, float, list[float]], _Pair]] = {
    "L1": lambda p, t, q, row: _evaluate_absolute(p - t, 1.0),
    "L2": lambda p, t, q, row: _evaluate_square(p - t, 1.0),
    "RelativeL1": lambda p, t, q, row: _evaluate_absolute(p - t, 1 / (abs(p) + _EPSILON)),
    "RelativeL2": lambda p, t, q, row: _evaluate_square(p - t, 1 / (p * p + _EPSILON)),
    "RelativeL2Luminance": lambda p, t, q, row: _evaluate_square(p - t, 1 / (_compute_luminance(row) ** 2 + _EPSILON)),
    "MAPE": lambda p, t, q, row: _evaluate_absolute(p - t, 1 / (abs(t) + _EPSILON)),
    "SMAPE": lambda p, t, q, row: _evaluate_absolute(p - t, 1 / ((abs(t) + abs(p)) / 2 + _EPSILON)),
    "CrossEntropy": lambda p, t, q, row: (-t * math.log(p), -t / p),
    "Variance": lambda p, t, q, row: (t * t / p - t * t / q, -t * t / (p * p)),
}
