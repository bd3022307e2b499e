"""Kernels of encodings of a position, coordinate by coordinate. Their gradients are generated.

    frequency            sin and cos of 2^k pi x
    triangle_wave        triangle waves of period 2^(2 - k), each shifted by a quarter more
    one_blob             how much of a bump around x, as wide as a bin, lies in each of n bins
    spherical_harmonics  a direction's real spherical harmonics

The references are those of `reference`. All of these have derivatives of any order, forward mode and batches,
since no gradient is written by hand. All constants have the type `fp` of the arrays ("f32" or "f64"): the type of
a plain literal depends on how the engine was started.

The columns of `y` are ordered as tiny-cuda-nn's: by dim, then by frequency, then sin before cos.
"""

import math
from types import ModuleType
from typing import Any

OCTAVES = 4
"""Sine and cosine are evaluated for one in this many frequencies.

The others are double angles, and each doubling doubles the error.
"""


TERMS = {"f32": 5, "f64": 9}
"""The number of terms of the series of sine and cosine, after which the last digit no longer changes.

It is for arguments up to a quarter of a half turn.
"""


def frequency(lang: ModuleType, *, fp: str, n_frequencies: int) -> Any:
    """Build the kernel of `reference.frequency`: x [n, d] -> y [n, 2 d n_frequencies].

    Half turns are reduced to [-1/4, 1/4], which is exact, and sin and cos of that are their series: an engine's own
    take several times as long on the CPU, and in float32 multiply large angles by a rounded pi. Only every fourth
    frequency takes them: the others are double angles. With 12 frequencies in float32 the error is 2e-6, that of the
    sin of large angles 4e-4.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    octaves, last = OCTAVES, TERMS[fp] - 1
    sines = tuple((-1) ** n * math.pi ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(last + 1))
    cosines = tuple((-1) ** n * math.pi ** (2 * n) / math.factorial(2 * n) for n in range(last + 1))

    @lang.func
    def sin_and_cos(turns):
        """Return the sine and cosine of an angle in half turns."""
        quarters = lang.floor(turns * real(2.0) + real(0.5))
        left = turns - quarters * real(0.5)
        square = left * left
        s, c = real(sines[last]), real(cosines[last])
        for n in lang.static(range(last)):
            s = s * square + real(sines[last - 1 - n])
            c = c * square + real(cosines[last - 1 - n])
        s *= left
        quadrant = quarters - real(4.0) * lang.floor(quarters * real(0.25))
        if quadrant == real(1.0) or quadrant == real(3.0):
            s, c = c, -s
        if quadrant > real(1.5):
            s, c = -s, -c
        return lang.Vector([s, c])

    @lang.kernel
    def frequency(x: array, y: array):
        for i, dim in lang.ndrange(x.shape[0], x.shape[1]):
            s, c = real(0.0), real(1.0)
            for k in lang.static(range(n_frequencies)):
                if lang.static(k % octaves == 0):
                    both = sin_and_cos(x[i, dim] * real(2.0**k))
                    s, c = both[0], both[1]
                else:
                    s, c = real(2.0) * s * c, real(1.0) - real(2.0) * s * s
                y[i, (dim * n_frequencies + k) * 2] = s
                y[i, (dim * n_frequencies + k) * 2 + 1] = c

    return frequency


def triangle_wave(lang: ModuleType, *, fp: str, n_frequencies: int) -> Any:
    """Build the kernel of `reference.triangle_wave`: x [n, d] -> y [n, d n_frequencies]."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)

    @lang.kernel
    def triangle_wave(x: array, y: array):
        for i, dim in lang.ndrange(x.shape[0], x.shape[1]):
            for k in lang.static(range(n_frequencies)):
                turns = x[i, dim] * real(2.0 ** (k - 1)) + real(0.25 * k)
                y[i, dim * n_frequencies + k] = lang.abs(turns - lang.floor(turns) - real(0.5)) * real(4.0) - real(1.0)

    return triangle_wave


def one_blob(lang: ModuleType, *, fp: str, n_bins: int) -> Any:
    """Build the kernel of `reference.one_blob`: x [n, d] -> y [n, d n_bins]."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)

    @lang.func
    def below(distance):
        """Return the fraction of the bump that lies below a boundary at this distance from its center."""
        u = distance * real(1.0 * n_bins)
        u = lang.select(u > real(1.0), real(1.0), lang.select(u < real(-1.0), real(-1.0), u))  # min loses NaN
        uu = u * u
        return u * (real(15.0) - uu * (real(10.0) - real(3.0) * uu)) * real(0.0625) + real(0.5)

    @lang.func
    def wrap(distance):
        """Return the fraction of a bump on a circle of length 1 that lies below a boundary at this distance from its
        center.
        """
        return below(distance) + below(distance - real(1.0)) + below(distance + real(1.0))

    @lang.kernel
    def one_blob(x: array, y: array):
        for i, dim in lang.ndrange(x.shape[0], x.shape[1]):
            left = wrap(-x[i, dim])
            for k in range(n_bins):
                right = wrap(lang.cast(k + 1, real) / real(1.0 * n_bins) - x[i, dim])
                y[i, dim * n_bins + k] = right - left
                left = right

    return one_blob


def spherical_harmonics(lang: ModuleType, *, fp: str, degree: int) -> Any:
    """Build the kernel of `reference.spherical_harmonics`: x [n, 3] -> y [n, degree^2].

    With (dx, dy, dz) = 2 x - 1, order m of degree l is the real or the imaginary part of (dx + i dy)^m, times a
    polynomial of dz, which comes from the two before it.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    factor = {(n, m): harmonic_factor(n, m) for n in range(degree) for m in range(n + 1)}
    factors = tuple(factor.get((n, m), 0.0) for n in range(degree) for m in range(degree))

    @lang.kernel
    def spherical_harmonics(x: array, y: array):
        for i in range(x.shape[0]):
            dx = real(2.0) * x[i, 0] - real(1.0)
            dy = real(2.0) * x[i, 1] - real(1.0)
            dz = real(2.0) * x[i, 2] - real(1.0)
            re, im = real(1.0), real(0.0)  # of (dx + i dy)^m
            for m in lang.static(range(degree)):
                lower, legendre = real(0.0), real(1.0)
                for n in lang.static(range(m, degree)):
                    if lang.static(n > m):
                        higher = (real(2.0 * n - 1.0) * dz * legendre - real(n + m - 1.0) * lower) / real(1.0 * n - m)
                        lower, legendre = legendre, higher
                    scaled = real(factors[n * degree + m]) * legendre
                    y[i, n * n + n + m] = scaled * re
                    if lang.static(m > 0):
                        y[i, n * n + n - m] = scaled * im
                re, im = re * dx - im * dy, re * dy + im * dx

    return spherical_harmonics


def harmonic_factor(n: int, m: int) -> float:
    """Return the factor that makes order m of degree n orthonormal, with tiny-cuda-nn's signs.

    It applies to polynomials normalized to start with 1.
    """
    start = math.prod(range(2 * m - 1, 0, -2))
    norm = math.sqrt((2 * n + 1) / (4 * math.pi) * math.factorial(n - m) / math.factorial(n + m))
    return (-1) ** m * start * norm * (math.sqrt(2) if m else 1.0)
