"""Differentiable sums and products along the samples of each ray."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .. import kernels
from ..tracing import constant_when_traced
from ._ops import get_op, known_when_traced, register_maker
from ._packed import check_floats, check_rays, check_shapes, make_shape_error
from ._rule import Asked, Rule, run, steady


def inclusive_sum(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Compute inclusive prefix sums of the values of each ray's samples.

    y_i = sum over j <= i of values_j. Arguments and errors as in `exclusive_prod`.

    Example:
        >>> ts.render.inclusive_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 5., 4.])
    """
    return _scan("inclusive_sum", values, rays, engine)


def exclusive_sum(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Compute exclusive prefix sums of the values of each ray's samples.

    y_i = sum over j < i of values_j. Arguments and errors as in `exclusive_prod`.

    Example:
        >>> ts.render.exclusive_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([0., 2., 0.])
    """
    return _scan("exclusive_sum", values, rays, engine)


def inclusive_prod(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Compute inclusive prefix products of the values of each ray's samples.

    y_i = product over j <= i of values_j. Arguments and errors as in `exclusive_prod`.

    Example:
        >>> ts.render.inclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 6., 4.])
    """
    return _scan("inclusive_prod", values, rays, engine)


def exclusive_prod(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Compute exclusive prefix products of the values of each ray's samples.

    y_i = product over j < i of values_j

    Args:
        values: (s) or (s, c). Differentiable, twice in plain calls, also for products with zeros.
        rays: (n, 2), integers: the start and the count of each ray's samples; rows must not overlap.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Shaped like the values; 0 for samples that belong to no ray.

    Raises:
        ArgumentError: an argument is not a tensor.
        ShapeError: a tensor has other dims, or `rays` points outside the samples (checked on the CPU only).
        DtypeError: the values are neither float32 nor float64, or `rays` are not integers.

    Example:
        >>> ts.render.exclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([1., 2., 1.])
    """
    return _scan("exclusive_prod", values, rays, engine)


def segment_sum(values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Sum the values of each ray's samples.

    Arguments and errors as in `exclusive_prod`. Returns (n) or (n, c), 0 for a ray without samples.

    Example:
        >>> ts.render.segment_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1], [3, 0]]))
        tensor([5., 4., 0.])
    """
    columns, where = _check_columns("segment_sum", values, rays)
    (y,) = run(_get_rule("segment_sum", columns, engine), columns, where)
    return y.view(y.shape[:1] + values.shape[1:])


def accumulate(weights: Tensor, values: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Sum weights times values over each ray's samples, as `composite` does with colors.

    y_n = sum over the samples i of ray n of weights_i values_i

    Args:
        weights: (s). Differentiable.
        values: (s, c), any number of columns. Differentiable.
        rays: (n, 2), integers: the start and the count of each ray's samples; rows must not overlap.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        (n, c), 0 for a ray without samples. Raises the same errors as `exclusive_prod`.

    Example:
        >>> ts.render.accumulate(torch.tensor([0.5, 2.0]), torch.tensor([[2.0], [3.0]]), torch.tensor([[0, 2]]))
        tensor([[7.]])
    """
    check_floats("accumulate", {"weights": weights, "values": values})
    if values.ndim != 2:
        raise make_shape_error("accumulate", "values", values, "[s, c]", "Flatten further dims.")
    shapes = {"weights": (weights, "[s]", tuple(values.shape[:1])), "values": (values, "[s, c]", tuple(values.shape))}
    check_shapes("accumulate", shapes)
    where = check_rays("accumulate", rays, len(values))
    (y,) = run(_get_rule("accumulate", values, engine), weights, values, where)
    return y


def _scan(name: str, values: Tensor, rays: Tensor, engine: str | None) -> Tensor:
    columns, where = _check_columns(name, values, rays)
    (y,) = run(_get_rule(name, columns, engine), columns, where)
    return y.view(values.shape)


def _check_columns(name: str, values: Tensor, rays: Tensor) -> tuple[Tensor, Tensor]:
    """Check values and rays. Return the values as (s, c), and the starts and counts of the rays as int32.

    Raises:
        ArgumentError, DtypeError, ShapeError: they do not fit.
    """
    check_floats(name, {"values": values})
    if values.ndim not in (1, 2):
        raise make_shape_error(name, "values", values, "[s] or [s, c]", "Flatten further dims.")
    return values if values.ndim == 2 else values[:, None], check_rays(name, rays, len(values))


_lanes_of = constant_when_traced(kernels.choose_lanes)


def _get_rule(name: str, values: Tensor, engine: str | None) -> Rule:
    return get_op(name, engine, values, _lanes_of(known_when_traced(values.shape[1])))


def _make_sum_rule(exclusive: bool, lang: Any, fp: str, lanes: int) -> Rule:
    sums = kernels.running_sum(lang, fp=fp, lanes=lanes, exclusive=exclusive)
    value = steady(
        "values[s, c], segments rays[n, 2]: i32 -> y[s, c]", sums.value, adjoint="source", name="running_sum"
    )
    pull = steady(
        "segments rays[n, 2]: i32, c[s, k] -> slope[s, k]", sums.pull, adjoint="source", name="running_sum_gradient"
    )
    return Rule(value, lambda asked: (pull(asked.inputs[1], asked.cotangent(0)), None))


def _make_product_rule(exclusive: bool, lang: Any, fp: str, lanes: int) -> Rule:
    products = kernels.running_product(lang, fp=fp, lanes=lanes, exclusive=exclusive)
    value = steady(
        "values[s, c], segments rays[n, 2]: i32 -> y[s, c]", products.value, adjoint="source", name="running_product"
    )
    arrays = "values[s, k], segments rays[n, 2]: i32, y[s, k], c[s, k] -> slope[s, k]"
    pull = steady(arrays, products.pull, adjoint="source", name="running_product_gradient")
    return Rule(value, lambda asked: (pull(*asked.inputs, asked.outputs[0], asked.cotangent(0)), None))


@register_maker("segment_sum")
def _make_segment_sum_rule(lang: Any, fp: str, lanes: int) -> Rule:
    segment_sums = kernels.segment_sum(lang, fp=fp, lanes=lanes)
    value = steady(
        "values[s, c], segments rays[n, 2]: i32 -> y[n, c]", segment_sums.value, adjoint="source", name="segment_sum"
    )
    pull = steady(
        "segments rays[n, 2]: i32, c[n, k] -> slope[s, k]",
        segment_sums.pull,
        adjoint="source",
        name="segment_sum_gradient",
    )
    return Rule(value, lambda asked: (pull(asked.inputs[1], asked.cotangent(0), s=len(asked.inputs[0])), None))


@register_maker("accumulate")
def _make_accumulate_rule(lang: Any, fp: str, lanes: int) -> Rule:
    weighted_sums = kernels.accumulate(lang, fp=fp, lanes=lanes)
    arrays = "weights[s], values[s, k], segments rays[n, 2]: i32"
    value = steady(f"{arrays} -> y[n, k]", weighted_sums.value, adjoint="source", name="accumulate")
    slopes = "slope_weights[s], slope_values[s, k]"
    pull = steady(f"{arrays}, c[n, k] -> {slopes}", weighted_sums.pull, adjoint="source", name="accumulate_gradients")

    def gradients(asked: Asked) -> Sequence[Tensor | None]:
        return (*pull(*asked.inputs, asked.cotangent(0)), None)

    return Rule(value, gradients)


register_maker("inclusive_sum")(functools.partial(_make_sum_rule, False))
register_maker("exclusive_sum")(functools.partial(_make_sum_rule, True))
register_maker("inclusive_prod")(functools.partial(_make_product_rule, False))
register_maker("exclusive_prod")(functools.partial(_make_product_rule, True))
