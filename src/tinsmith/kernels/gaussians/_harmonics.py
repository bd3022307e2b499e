"""Colors of Gaussians by direction, from spherical harmonics. The reference is `reference.evaluate_harmonics`."""

from types import ModuleType
from typing import Any

from .._encodings import harmonic_factor


def gaussian_harmonics(lang: ModuleType, *, fp: str, degree: int, channels: int, masked: bool) -> Any:
    """Build the kernel of colors by direction. Its parameters, all of one float type unless noted:

        directions    [p, 3]  are normalized first
        coefficients  [g, k, channels]
        rows          [p] int32  the row of coefficients of each direction
        masks         [p] bool   used if `masked`; where False, `colors` is left unchanged
        colors        [p, channels]

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        degree: 0 to 4; (degree + 1)^2 coefficients are read.
        channels: the number of channels, unrolled.
        masked: whether `masks` is read.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    n_bands = degree + 1
    factor = {(n, m): harmonic_factor(n, m) for n in range(n_bands) for m in range(n + 1)}
    factors = tuple(factor.get((n, m), 0.0) for n in range(n_bands) for m in range(n_bands))

    @lang.kernel
    def gaussian_harmonics(directions: array, coefficients: array, rows: array, masks: array, colors: array):
        for p in range(directions.shape[0]):
            is_wanted = True
            if lang.static(masked):
                is_wanted = masks[p]
            if is_wanted:
                g = rows[p]
                x, y, z = directions[p, 0], directions[p, 1], directions[p, 2]
                shrink = real(1.0) / lang.sqrt(x * x + y * y + z * z)
                x, y, z = x * shrink, y * shrink, z * shrink
                total = lang.Vector([0.0] * channels, dt=real)
                re, im = real(1.0), real(0.0)  # of (x + i y)^m
                for m in lang.static(range(n_bands)):
                    lower, legendre = real(0.0), real(1.0)
                    for n in lang.static(range(m, n_bands)):
                        if lang.static(n > m):
                            higher = (real(2.0 * n - 1.0) * z * legendre - real(n + m - 1.0) * lower) / real(
                                1.0 * n - m
                            )
                            lower, legendre = legendre, higher
                        scaled = real(factors[n * n_bands + m]) * legendre
                        for c in lang.static(range(channels)):
                            total[c] += scaled * re * coefficients[g, n * n + n + m, c]
                            if lang.static(m > 0):
                                total[c] += scaled * im * coefficients[g, n * n + n - m, c]
                    re, im = re * x - im * y, re * y + im * x
                for c in lang.static(range(channels)):
                    colors[p, c] = total[c]

    return gaussian_harmonics
