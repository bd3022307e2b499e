"""Loss: a torch module that checks shapes and returns the mean of one of `TERMS`, by the loss's name.

A term is the value of a loss for one element, a function of the prediction p, the target t and the density q that the
data was drawn with. It returns the element's value before division by that density and by the number of elements.

The denominator of a relative loss is held constant in the backward pass (`_detach`), as in tiny-cuda-nn: otherwise
training could lower the loss by increasing the denominator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..._errors import ShapeError, refusal
from ...torch_side import Layer, one_node
from .._precision import round_to, widen
from ..config import Section, resolve_section

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


class Loss(Layer):
    """A loss as tiny-cuda-nn defines it, by the name of its `otype` in upper or lower case.

    With prediction p, target t, and the density q that the data was drawn with, over n elements:

        loss = sum(term(p, t) / q) / n

        L1                   |p - t|                      L2            (p - t)**2
        RelativeL1           |p - t| / (|p| + 0.01)       RelativeL2    (p - t)**2 / (p**2 + 0.01)
        MAPE                 |p - t| / (|t| + 0.01)       SMAPE         |p - t| / ((|t| + |p|) / 2 + 0.01)
        RelativeL2Luminance  (p - t)**2 / (Y(p)**2 + 0.01), with Y = 0.299 r + 0.587 g + 0.114 b; of six
                             channels or more, the first six are two colors, which are added
        CrossEntropy         -t * log(p)                  Variance      t**2 / p - t**2 / q

    Gradients are tiny-cuda-nn's: the p in the denominator of RelativeL1, RelativeL2, RelativeL2Luminance
    and SMAPE is held constant. (At p == t the slope of |p - t| is 0; in tiny-cuda-nn it is 1 or -1.)

    Half precision is computed in float32, and the loss is rounded once; under `torch.autocast` it stays float32.

    Args:
        otype: the name. "RelativeL2" is tiny-cuda-nn's default.

    Raises:
        ConfigError: the name is unknown.

    Example:
        >>> ts.nn.Loss("L2")(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])).item()
        2.0
    """

    def __init__(self, otype: str = "RelativeL2") -> None:
        super().__init__()
        self.otype = resolve_section("loss", {"otype": otype}).otype

    @one_node
    def forward(
        self,
        prediction: torch.Tensor,
        target: torch.Tensor,
        data_pdf: torch.Tensor | None = None,
        *,
        n_elements: int | None = None,
    ) -> torch.Tensor:
        """Compute the loss, a 0-d tensor.

        Args:
            prediction: (..., channel). Differentiable.
            target: shaped like the prediction. Differentiable.
            data_pdf: the density that each element was drawn with, in a shape that broadcasts to the
                target's; importance sampling divides by it. None: 1 everywhere. Differentiable.
            n_elements: the divisor, instead of the prediction's number of elements. For an array of networks, pass
                the number of elements of one network, so that loss and gradients do not depend on how many there are.

        Raises:
            ShapeError: the shapes do not fit, or RelativeL2Luminance has fewer than three channels.
        """
        pdf = prediction.new_ones(()) if data_pdf is None else data_pdf
        values = self._compute_terms(prediction, target, pdf)
        if data_pdf is not None:
            values = values / widen(pdf)
        total = values.sum() / (prediction.numel() if n_elements is None else n_elements)
        return round_to(total, _result_dtype(prediction, target, pdf))

    def compute_each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Compute the loss of each network of an array: from two tensors (network, ..., channel) to (network)."""
        terms = self._compute_terms(prediction, target, prediction.new_ones(()))
        # Not `flatten` or `mean`: a batch may be sharded unevenly over processes.
        means = terms.sum(tuple(range(1, terms.ndim))) / math.prod(terms.shape[1:])
        return round_to(means, _result_dtype(prediction, target))

    def _compute_terms(self, prediction: torch.Tensor, target: torch.Tensor, pdf: torch.Tensor) -> torch.Tensor:
        self._check(prediction, target, pdf)
        return TERMS[self.otype](widen(prediction), widen(target), widen(pdf))

    def _check(self, prediction: torch.Tensor, target: torch.Tensor, pdf: torch.Tensor) -> None:
        rows = [("prediction", str(tuple(prediction.shape))), ("target", str(tuple(target.shape)))]
        if prediction.shape != target.shape:
            remedy = "Give both one shape."
            raise ShapeError(refusal(f"The target does not fit the prediction in loss {self.otype}", rows, remedy))
        if not _broadcasts(pdf.shape, target.shape):
            rows.append(("data_pdf", str(tuple(pdf.shape))))
            remedy = "Pass one density per element, or one per row: (..., 1)."
            raise ShapeError(refusal(f"The densities do not fit the target in loss {self.otype}", rows, remedy))
        if self.otype == "RelativeL2Luminance" and (prediction.ndim == 0 or prediction.shape[-1] < 3):
            headline = "RelativeL2Luminance needs red, green and blue as the last axis"
            raise ShapeError(refusal(headline, rows[:1], "Use RelativeL2 for values that are not colors."))

    def extra_repr(self) -> str:
        """Return the name of the loss, for `repr`."""
        return self.otype


def make_loss(config: Section | Mapping[str, Any] | str | Path | None = None) -> Loss:
    """Create the loss that a configuration describes, such as `{"otype": "RelativeL2"}`.

    Args:
        config: the loss's part of a configuration, or its `Section`; None for the default, RelativeL2.

    Raises:
        ConfigError: the loss is unknown, or the configuration has other keys: losses have no options.

    Example:
        >>> ts.nn.make_loss({"otype": "L2"})
        Loss(L2)
    """
    return Loss(resolve_section("loss", config).otype)


def _result_dtype(*tensors: torch.Tensor) -> torch.dtype:
    if torch.is_autocast_enabled(tensors[0].device.type):
        return torch.float32
    return functools.reduce(torch.promote_types, [one.dtype for one in tensors])


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    if len(shape) > len(to):
        return False
    return all(mine in (1, theirs) for mine, theirs in zip(reversed(shape), reversed(to), strict=False))
