"""Cumulative and total sums and products along the samples of each ray, with handwritten gradients.

A thread processes a ray and some columns. There is no division: the gradient of a running product is a sweep from the
last sample to the first, so that zeros among the values are allowed. With P_k the product of all values before
sample k, and c the cotangents of the running products,

    inclusive:  slope_k = P_k B_k,  B_k = c_k + value_(k+1) B_(k+1)
    exclusive:  slope_k = P_k B_k,  B_k = c_(k+1) + value_(k+1) B_(k+1)
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._packed import build_span

MOST_LANES = 16


def choose_lanes(columns: int) -> int:
    """Return the number of columns that a thread processes: the largest divisor of `columns` up to `MOST_LANES`."""
    return max((n for n in range(1, MOST_LANES + 1) if columns % n == 0), default=1)


class Scan(NamedTuple):
    """Kernels of running sums or products: arrays [s, c] of one float type, and rays [n, 2] int32.

    Samples that belong to no ray are left unchanged in the output.

    Attributes:
        value: values, rays -> y.
        pull: of a sum: rays, c -> slope. Of a product: values, rays, y, c -> slope.
    """

    value: Any
    pull: Any


class Total(NamedTuple):
    """Kernels of one number per ray and column.

    Attributes:
        value: values [s, c], rays -> y [n, c]; with weights: weights [s], values, rays -> y.
        pull: like [s], rays, c [n, c] -> slope [s, c]; with weights: weights, values, rays, c -> slope_weights [s],
            slope_values [s, c].
    """

    value: Any
    pull: Any


def running_sum(lang: ModuleType, *, fp: str, lanes: int, exclusive: bool) -> Scan:
    """Build the kernels of running sums; `exclusive` leaves out the sample itself. `lanes` must divide the columns."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)

    @lang.kernel
    def value(values: array, rays: array, y: array):
        for ray, block in lang.ndrange(rays.shape[0], values.shape[1] // lanes):
            first, last = span(rays, ray, values.shape[0])
            total = lang.Vector([0.0] * lanes, dt=real)
            for i in range(first, last):
                for k in lang.static(range(lanes)):
                    before = total[k]
                    total[k] += values[i, block * lanes + k]
                    y[i, block * lanes + k] = before if lang.static(exclusive) else total[k]

    @lang.kernel
    def pull(rays: array, c: array, slope: array):
        for ray, block in lang.ndrange(rays.shape[0], c.shape[1] // lanes):
            first, last = span(rays, ray, c.shape[0])
            total = lang.Vector([0.0] * lanes, dt=real)
            for back in range(last - first):
                i = last - 1 - back
                for k in lang.static(range(lanes)):
                    behind = total[k]
                    total[k] += c[i, block * lanes + k]
                    slope[i, block * lanes + k] = behind if lang.static(exclusive) else total[k]

    return Scan(value, pull)


def running_product(lang: ModuleType, *, fp: str, lanes: int, exclusive: bool) -> Scan:
    """Build the kernels of running products; `exclusive` leaves out the sample itself.

    `lanes` must divide the columns.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)

    @lang.kernel
    def value(values: array, rays: array, y: array):
        for ray, block in lang.ndrange(rays.shape[0], values.shape[1] // lanes):
            first, last = span(rays, ray, values.shape[0])
            total = lang.Vector([1.0] * lanes, dt=real)
            for i in range(first, last):
                for k in lang.static(range(lanes)):
                    before = total[k]
                    total[k] = before * values[i, block * lanes + k]
                    y[i, block * lanes + k] = before if lang.static(exclusive) else total[k]

    @lang.kernel
    def pull(values: array, rays: array, y: array, c: array, slope: array):
        for ray, block in lang.ndrange(rays.shape[0], values.shape[1] // lanes):
            first, last = span(rays, ray, values.shape[0])
            behind = lang.Vector([0.0] * lanes, dt=real)
            for back in range(last - first):
                i = last - 1 - back
                for k in lang.static(range(lanes)):
                    column = block * lanes + k
                    if lang.static(exclusive):
                        slope[i, column] = y[i, column] * behind[k]
                        behind[k] = c[i, column] + values[i, column] * behind[k]
                    else:
                        here = c[i, column] + behind[k]
                        before = real(1.0)
                        if i > first:
                            before = y[i - 1, column]
                        slope[i, column] = before * here
                        behind[k] = values[i, column] * here

    return Scan(value, pull)


def segment_sum(lang: ModuleType, *, fp: str, lanes: int) -> Total:
    """Build the kernels of sums over the samples of each ray. `lanes` must divide the columns."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)

    @lang.kernel
    def value(values: array, rays: array, y: array):
        for ray, block in lang.ndrange(rays.shape[0], values.shape[1] // lanes):
            first, last = span(rays, ray, values.shape[0])
            total = lang.Vector([0.0] * lanes, dt=real)
            for i in range(first, last):
                for k in lang.static(range(lanes)):
                    total[k] += values[i, block * lanes + k]
            for k in lang.static(range(lanes)):
                y[ray, block * lanes + k] = total[k]

    @lang.kernel
    def pull(rays: array, c: array, slope: array):
        for ray, block in lang.ndrange(rays.shape[0], c.shape[1] // lanes):
            first, last = span(rays, ray, slope.shape[0])
            for i in range(first, last):
                for k in lang.static(range(lanes)):
                    slope[i, block * lanes + k] = c[ray, block * lanes + k]

    return Total(value, pull)


def accumulate(lang: ModuleType, *, fp: str, lanes: int) -> Total:
    """Build the kernels of weighted sums over the samples of each ray. `lanes` must divide the columns."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)

    @lang.kernel
    def value(weights: array, values: array, rays: array, y: array):
        for ray, block in lang.ndrange(rays.shape[0], values.shape[1] // lanes):
            first, last = span(rays, ray, values.shape[0])
            total = lang.Vector([0.0] * lanes, dt=real)
            for i in range(first, last):
                for k in lang.static(range(lanes)):
                    total[k] += weights[i] * values[i, block * lanes + k]
            for k in lang.static(range(lanes)):
                y[ray, block * lanes + k] = total[k]

    @lang.kernel
    def pull(weights: array, values: array, rays: array, c: array, slope_weights: array, slope_values: array):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, values.shape[0])
            for i in range(first, last):
                gain = real(0.0)
                for block in range(values.shape[1] // lanes):
                    for k in lang.static(range(lanes)):
                        column = block * lanes + k
                        gain += c[ray, column] * values[i, column]
                        slope_values[i, column] = weights[i] * c[ray, column]
                slope_weights[i] = gain

    return Total(value, pull)
