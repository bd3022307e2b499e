"""Blending of 2-D Gaussians in tiles, front to back. The reference is `reference.blend_gaussians`.

With i the Gaussians of a pixel's tile, nearest first, and d from the Gaussian's center to the pixel's:

    alpha_i = min(0.999, opacity_i exp(-d^T conic_i d / 2))     left out where alpha < 1 / 255
    through_i = product over j < i of (1 - alpha_j)
    image = sum of through_i alpha_i color_i,   left = the transmittance of all of them

A pixel ends before the Gaussian that would leave a transmittance of 1e-4 or less, and that one is not seen.

This form, a loop with `break` inside a parallel loop, is vectorized on CPUs (docs/about/decisions/vector-speed.md):
sixteen adjacent pixels share a tile, and so the bounds of the loop.
"""

from types import ModuleType
from typing import Any

MOST, FAINTEST, OPAQUE = 0.999, 1 / 255, 1e-4
"""The largest alpha, the smallest, and the transmittance at which a pixel counts as opaque."""


def gaussian_blend(lang: ModuleType, *, fp: str, channels: int, tile_size: int) -> Any:
    """Build the kernel that blends Gaussians. Its parameters, all of one float type unless noted:

        means2d    [m, 2]  pixels; the center of the first pixel is (0.5, 0.5)
        conics     [m, 3]  xx, xy, yy
        colors     [m, channels]
        opacities  [m]
        ids        [k] int32      Gaussians of the first tile, nearest first, then of the next
        starts     [t + 1] int32  where those of a tile begin; tiles are ordered by row, image by image
        image      [v, h, w, channels],  left  [v, h, w]   h and w are whole tiles

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        channels: the number of channels, unrolled.
        tile_size: side of a tile, pixels.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    most, opaque = MOST, OPAQUE
    at_pixel = build_alpha_at_pixel(lang, fp=fp)

    @lang.kernel
    def gaussian_blend(
        means2d: array,
        conics: array,
        colors: array,
        opacities: array,
        ids: array,
        starts: array,
        image: array,
        left: array,
    ):
        for v, y, x in lang.ndrange(image.shape[0], image.shape[1], image.shape[2]):
            row = v * (image.shape[1] // tile_size) + y // tile_size
            tile = row * (image.shape[2] // tile_size) + x // tile_size
            through = real(1.0)
            total = lang.Vector([0.0] * channels, dt=real)
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                dx, dy, peak, is_seen = at_pixel(means2d, conics, opacities, i, x, y)
                alpha = lang.min(real(most), peak)
                if is_seen:
                    after = through * (real(1.0) - alpha)
                    if after <= real(opaque):
                        break
                    weight = alpha * through
                    for c in lang.static(range(channels)):
                        total[c] += weight * colors[i, c]
                    through = after
            left[v, y, x] = through
            for c in lang.static(range(channels)):
                image[v, y, x, c] = total[c]

    return gaussian_blend


def build_alpha_at_pixel(lang: ModuleType, *, fp: str) -> Any:
    """Build the function of a Gaussian at a pixel: the offset of its center, its alpha, and whether it is visible.

    This alpha is not yet limited to the largest one. Where it reaches that, its derivative is 0.
    """
    real = getattr(lang, fp)
    faintest = FAINTEST

    @lang.func
    def at_pixel(means2d: lang.template(), conics: lang.template(), opacities: lang.template(), i, x, y):
        dx, dy = means2d[i, 0] - (x + real(0.5)), means2d[i, 1] - (y + real(0.5))
        power = real(0.5) * (conics[i, 0] * dx * dx + conics[i, 2] * dy * dy) + conics[i, 1] * dx * dy
        peak = opacities[i] * lang.exp(-power)
        return dx, dy, peak, power >= real(0.0) and peak >= real(faintest)

    return at_pixel
