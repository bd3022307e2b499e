"""Sums and products along the samples of each ray, as operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from .._errors import ShapeError, refusal
from ..bridge import constant_when_traced, language, op
from ._packed import checked_floats, checked_rays, checked_shapes
from ._rule import FLOATS, Asked, Rule, run


def inclusive_sum(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Sums of the values of a ray's samples up to each, itself included.

    y_i = sum over j <= i of values_j. Arguments and what it raises: as `exclusive_prod`.

    Example:
        >>> inclusive_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 5., 4.])
    """
    return _scan("inclusive_sum", values, rays, engine)


def exclusive_sum(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Sums of the values of a ray's samples before each.

    y_i = sum over j < i of values_j. Arguments and what it raises: as `exclusive_prod`.

    Example:
        >>> exclusive_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([0., 2., 0.])
    """
    return _scan("exclusive_sum", values, rays, engine)


def inclusive_prod(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Products of the values of a ray's samples up to each, itself included.

    y_i = product over j <= i of values_j. Arguments and what it raises: as `exclusive_prod`.

    Example:
        >>> inclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 6., 4.])
    """
    return _scan("inclusive_prod", values, rays, engine)


def exclusive_prod(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Products of the values of a ray's samples before each.

    y_i = product over j < i of values_j

    Args:
        values: (s) or (s, c). Differentiable, twice in plain calls; products with zeros too.
        rays: (n, 2), integers: where a ray's samples start, and how many it has; no two rays share one.
        engine: "taichi" or "quadrants"; None for one that runs, or else Taichi.

    Returns:
        As the values; 0 for samples that no ray names.

    Raises:
        ArgumentError: something is no tensor.
        ShapeError: they have other dims, or `rays` points outside of the samples (told on the CPU alone).
        DtypeError: the values are neither float32 nor float64, or `rays` are no integers.

    Example:
        >>> exclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([1., 2., 1.])
    """
    return _scan("exclusive_prod", values, rays, engine)


def segment_sum(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Sums of the values of each ray's samples.

    Arguments and what it raises: as `exclusive_prod`. Returns (n) or (n, c), 0 for a ray without a sample.

    Example:
        >>> segment_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1], [3, 0]]))
        tensor([5., 4., 0.])
    """
    columns, where = _columns("segment_sum", values, rays)
    (y,) = run(_found("segment_sum", columns, engine), columns, where)
    return y.view(y.shape[:1] + values.shape[1:])


def accumulate(weights: Tensor, values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Sums of weights times values over each ray's samples: what `composite` does with colours, for anything else.

    y_n = sum over the samples i of ray n of weights_i values_i

    Args:
        weights: (s). Differentiable.
        values: (s, c), any number of columns. Differentiable.
        rays: (n, 2), integers: where a ray's samples start, and how many it has; no two rays share one.
        engine: "taichi" or "quadrants"; None for one that runs, or else Taichi.

    Returns:
        (n, c), 0 for a ray without a sample. What it raises: as `exclusive_prod`.

    Example:
        >>> accumulate(torch.tensor([0.5, 2.0]), torch.tensor([[2.0], [3.0]]), torch.tensor([[0, 2]]))
        tensor([[7.]])
    """
    checked_floats("accumulate", {"weights": weights, "values": values})
    if values.ndim != 2:
        raise _misfit("accumulate", values, "[s, c]")
    shapes = {"weights": (weights, "[s]", tuple(values.shape[:1])), "values": (values, "[s, c]", tuple(values.shape))}
    checked_shapes("accumulate", shapes)
    where = checked_rays("accumulate", rays, len(values))
    (y,) = run(_found("accumulate", values, engine), weights, values, where)
    return y


def _scan(name: str, values: Tensor, rays: Tensor, engine: str | None) -> Tensor:
    columns, where = _columns(name, values, rays)
    (y,) = run(_found(name, columns, engine), columns, where)
    return y.view(values.shape)


def _columns(name: str, values: Tensor, rays: Tensor) -> tuple[Tensor, Tensor]:
    """The values as (s, c), and the rays, if they fit."""
    checked_floats(name, {"values": values})
    if values.ndim not in (1, 2):
        raise _misfit(name, values, "[s] or [s, c]")
    return values if values.ndim == 2 else values[:, None], checked_rays(name, rays, len(values))


def _misfit(name: str, values: Tensor, axes: str) -> ShapeError:
    rows = [("came", str(tuple(values.shape))), ("expected", axes)]
    return ShapeError(refusal(f"`values` of `{name}` does not fit.", rows, "Flatten what there is of further dims."))


def _found(name: str, values: Tensor, engine: str | None) -> Rule:
    return _RULES[_built(name, engine, values.device, values.dtype, values.shape[1])]


_Key = tuple[str, str, str, int]
_RULES: dict[_Key, Rule] = {}
"""By operation, engine, type of numbers and lanes. In a global dict, where `torch.compile` finds them too."""


@constant_when_traced
def _built(name: str, engine: str | None, device: torch.device, dtype: torch.dtype, columns: int) -> _Key:
    """Where in `_RULES` an operation is, which is built at the first call."""
    lang = language(engine, device)
    lanes = kernels.lanes_of(columns)
    key = (name, lang.__name__, FLOATS[dtype], lanes)
    if key not in _RULES:
        _RULES[key] = _MAKERS[name](lang, FLOATS[dtype], lanes)
    return key


def _sum_rule(lang: Any, fp: str, lanes: int, *, exclusive: bool) -> Rule:
    built = kernels.running_sum(lang, fp=fp, lanes=lanes, exclusive=exclusive)
    value = op("values[s, c], rays[n, 2]: i32 -> y[s, c]", adjoint="source", name="running_sum")(built.value)
    pull = op("rays[n, 2]: i32, c[s, k] -> slope[s, k]", adjoint="source", name="running_sum_gradient")(built.pull)
    return Rule(value, lambda asked: (pull(asked.inputs[1], asked.cotangent(0)), None))


def _product_rule(lang: Any, fp: str, lanes: int, *, exclusive: bool) -> Rule:
    built = kernels.running_product(lang, fp=fp, lanes=lanes, exclusive=exclusive)
    value = op("values[s, c], rays[n, 2]: i32 -> y[s, c]", adjoint="source", name="running_product")(built.value)
    arrays = "values[s, k], rays[n, 2]: i32, y[s, k], c[s, k] -> slope[s, k]"
    pull = op(arrays, adjoint="source", name="running_product_gradient")(built.pull)
    return Rule(value, lambda asked: (pull(*asked.inputs, asked.outputs[0], asked.cotangent(0)), None))


def _segment_sum_rule(lang: Any, fp: str, lanes: int) -> Rule:
    built = kernels.segment_sum(lang, fp=fp, lanes=lanes)
    value = op("values[s, c], rays[n, 2]: i32 -> y[n, c]", adjoint="source", name="segment_sum")(built.value)
    pull = op("rays[n, 2]: i32, c[n, k] -> slope[s, k]", adjoint="source", name="segment_sum_gradient")(built.pull)
    return Rule(value, lambda asked: (pull(asked.inputs[1], asked.cotangent(0), s=len(asked.inputs[0])), None))


def _accumulate_rule(lang: Any, fp: str, lanes: int) -> Rule:
    built = kernels.accumulate(lang, fp=fp, lanes=lanes)
    arrays = "weights[s], values[s, k], rays[n, 2]: i32"
    value = op(f"{arrays} -> y[n, k]", adjoint="source", name="accumulate")(built.value)
    slopes = "slope_weights[s], slope_values[s, k]"
    pull = op(f"{arrays}, c[n, k] -> {slopes}", adjoint="source", name="accumulate_gradients")(built.pull)

    def gradients(asked: Asked) -> Sequence[Tensor | None]:
        return (*pull(*asked.inputs, asked.cotangent(0)), None)

    return Rule(value, gradients)


_MAKERS: dict[str, Callable[[Any, str, int], Rule]] = {
    "inclusive_sum": functools.partial(_sum_rule, exclusive=False),
    "exclusive_sum": functools.partial(_sum_rule, exclusive=True),
    "inclusive_prod": functools.partial(_product_rule, exclusive=False),
    "exclusive_prod": functools.partial(_product_rule, exclusive=True),
    "segment_sum": _segment_sum_rule,
    "accumulate": _accumulate_rule,
}
