"""Terms: the value of each loss for one element. `TERMS` lists them by the loss's name.

A term is a function of the prediction p, the target t and the density q that the data was drawn
with. It returns the element's value before division by that density and by the number of elements.

The denominator of a relative loss is held constant in the backward pass (`_detach`), as in tiny-cuda-nn: otherwise
training could lower the loss by increasing the denominator.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

EPSILON = 1e-2
"""Keeps relative losses finite where the prediction or target is 0."""

LUMINANCE = (0.299, 0.587, 0.114)
"""The weights of red, green and blue."""

Term = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _detach(value: torch.Tensor) -> torch.Tensor:
    return value.detach()


def _luminance(p: torch.Tensor) -> torch.Tensor:
    """Compute the luminance of colors, (..., channel) to (..., 1).

    The channels are red, green and blue. If there are six or more, the second three are added to the first.
    """
    color = p[..., :3] + p[..., 3:6] if p.shape[-1] >= 6 else p[..., :3]
    return sum(weight * color[..., i : i + 1] for i, weight in enumerate(LUMINANCE))  # type: ignore[return-value]


TERMS: dict[str, Term] = {
    "L1": lambda p, t, q: (p - t).abs(),
    "L2": lambda p, t, q: (p - t) ** 2,
    "RelativeL1": lambda p, t, q: (p - t).abs() / (_detach(p).abs() + EPSILON),
    "RelativeL2": lambda p, t, q: (p - t) ** 2 / (_detach(p) ** 2 + EPSILON),
    "RelativeL2Luminance": lambda p, t, q: (p - t) ** 2 / (_luminance(_detach(p)) ** 2 + EPSILON),
    "MAPE": lambda p, t, q: (p - t).abs() / (t.abs() + EPSILON),
    "SMAPE": lambda p, t, q: (p - t).abs() / (0.5 * (t.abs() + _detach(p).abs()) + EPSILON),
    "CrossEntropy": lambda p, t, q: -t * p.log(),
    "Variance": lambda p, t, q: t**2 / p - t**2 / q,
}
