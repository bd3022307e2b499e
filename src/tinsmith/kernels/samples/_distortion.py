"""Distortion along rays, in linear time, with handwritten gradients.

For the samples i of a ray, with t ascending (the reference, over pairs, is `reference.distortion_loss`):

    loss = sum over i, j of weight_i weight_j |t_i - t_j| + 1/3 sum of weight_i^2 step_i
         = 2 sum over i of weight_i (t_i W_i - M_i) + 1/3 sum of weight_i^2 step_i

W_i and M_i are the sums of weight_j and of weight_j t_j over the samples j before i. Distances do not change when
all t are shifted, so t is relative to the ray's first sample: for large t, t_i W_i - M_i would cancel.
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._packed import build_span


class Distortion(NamedTuple):
    """The kernels of the distortion loss: weights, t and steps [s] of one float type, rays [n, 2] int32.

    Attributes:
        value: weights, t, steps, rays -> loss [n].
        pull: weights, t, steps, rays, c [n] -> slope_weights, slope_t, slope_steps.
    """

    value: Any
    pull: Any


def distortion(lang: ModuleType, *, fp: str) -> Distortion:
    """Build the kernels of the distortion loss and its gradient; `fp` is the type of the arrays, "f32" or "f64"."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)

    @lang.kernel
    def value(weights: array, t: array, steps: array, rays: array, loss: array):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, weights.shape[0])
            pairs = real(0.0)
            own = real(0.0)
            before = real(0.0)
            moment = real(0.0)
            for i in range(first, last):
                weight, place = weights[i], t[i] - t[first]
                pairs += weight * (place * before - moment)
                own += weight * weight * steps[i]
                before += weight
                moment += weight * place
            loss[ray] = real(2.0) * pairs + own / real(3.0)

    @lang.kernel
    def pull(
        weights: array,
        t: array,
        steps: array,
        rays: array,
        c: array,
        slope_weights: array,
        slope_t: array,
        slope_steps: array,
    ):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, weights.shape[0])
            behind = real(0.0)
            moment_behind = real(0.0)
            for i in range(first, last):
                behind += weights[i]
                moment_behind += weights[i] * (t[i] - t[first])
            before = real(0.0)
            moment = real(0.0)
            for i in range(first, last):
                weight, place = weights[i], t[i] - t[first]
                behind -= weight
                moment_behind -= weight * place
                far = (place * before - moment) + (moment_behind - place * behind)
                slope_weights[i] = real(2.0) * c[ray] * (far + weight * steps[i] / real(3.0))
                slope_t[i] = real(2.0) * c[ray] * weight * (before - behind)
                slope_steps[i] = c[ray] * weight * weight / real(3.0)
                before += weight
                moment += weight * place

    return Distortion(value, pull)
