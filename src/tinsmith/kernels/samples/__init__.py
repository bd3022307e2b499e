"""Kernels of samples along rays, packed one ray after the other: weights, sums, losses and resampling."""

from ._composite import composite
from ._continued_weights import continued_weights
from ._distortion import distortion
from ._entropy import entropy
from ._resampling import resampling
from ._segments import accumulate, lanes_of, running_product, running_sum, segment_sum

__all__ = [
    "accumulate",
    "composite",
    "continued_weights",
    "distortion",
    "entropy",
    "lanes_of",
    "resampling",
    "running_product",
    "running_sum",
    "segment_sum",
]
