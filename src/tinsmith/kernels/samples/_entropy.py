"""Entropy of the weights along rays, with a handwritten gradient.

With W the sum of a ray's weights, p_i = weight_i / W and e = 1e-10 (the reference is `reference.entropy_penalty`):

    H = -sum of p_i log max(p_i, e)
    d H / d weight_i = (f_i - sum of p_j f_j) / W,  f_i = -log max(p_i, e) - (1 where p_i > e)

A ray whose W is not above `faintest` has H = 0, since it meets nothing.
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._packed import build_span

_INVERSE_FAINTEST = 1e10  # exact in float32, which 1e-10 is not


class Entropy(NamedTuple):
    """The kernels of the entropy: weights [s] of one float type, rays [n, 2] int32.

    Attributes:
        value: weights, rays, faintest -> entropy [n].
        pull: weights, rays, c [n], faintest -> slope [s].
    """

    value: Any
    pull: Any


def entropy(lang: ModuleType, *, fp: str) -> Entropy:
    """Build the kernels of the entropy of weights and its gradient; `fp` is the type of the arrays, "f32" or "f64"."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)

    @lang.func
    def surprise(p):
        return -lang.log(lang.max(p, real(1.0) / real(_INVERSE_FAINTEST)))

    @lang.func
    def total_of(weights: lang.template(), first, last):
        total = real(0.0)
        for i in range(first, last):
            total += weights[i]
        return total

    @lang.kernel
    def value(weights: array, rays: array, faintest: real, entropy: array):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, weights.shape[0])
            whole = total_of(weights, first, last)
            nats = real(0.0)
            if whole > faintest:
                for i in range(first, last):
                    p = weights[i] / whole
                    nats += p * surprise(p)
            entropy[ray] = nats

    @lang.func
    def steepness(p):
        return surprise(p) - lang.select(p * real(_INVERSE_FAINTEST) > real(1.0), real(1.0), real(0.0))

    @lang.kernel
    def pull(weights: array, rays: array, c: array, faintest: real, slope: array):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, weights.shape[0])
            whole = total_of(weights, first, last)
            if whole > faintest:
                mean = real(0.0)
                for i in range(first, last):
                    p = weights[i] / whole
                    mean += p * steepness(p)
                for i in range(first, last):
                    slope[i] = c[ray] * (steepness(weights[i] / whole) - mean) / whole

    return Entropy(value, pull)
