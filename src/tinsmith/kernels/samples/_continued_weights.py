"""Weights of samples on rays that have passed through earlier samples: compositing in rounds.

Symbols are those of `_composite`, except that a ray's transmittance begins at `before` instead of 1:

    weight_i = (transmittance before sample i) alpha_i        0 once that is below the threshold
"""

from types import ModuleType
from typing import Any

from ._composite import build_absorption
from ._packed import build_span


def continued_weights(lang: ModuleType, *, fp: str) -> Any:
    """Build the kernel of weights that continue a ray. Its parameters, all of one float type but `rays`:

    densities, steps  [s]     samples
    rays       [n, 2]  int32: start, count; no two rays share a sample
    before     [n]     transmittance before a ray's first sample
    threshold  number
    weights    [s]     samples without a ray are left unchanged
    left       [n]     transmittance after a ray's last sample that has a weight
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)
    absorbed = build_absorption(lang, fp=fp)

    @lang.kernel
    def continued_weights(
        densities: array, steps: array, rays: array, before: array, threshold: real, weights: array, left: array
    ):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, densities.shape[0])
            through = before[ray]
            for i in range(first, last):
                weight = real(0.0)
                if through >= threshold:
                    alpha, shine = absorbed(densities[i] * steps[i])
                    weight = through * alpha
                    through *= shine
                weights[i] = weight
            left[ray] = through

    return continued_weights
