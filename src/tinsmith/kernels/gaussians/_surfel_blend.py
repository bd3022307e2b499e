"""Blending of surfels in tiles, front to back. The reference is `reference.blend_surfels`.

A pixel's ray meets the plane of surfel i at its coordinates (u, v), in standard deviations; d is the vector from the
surfel's center in the image to the pixel's. It prevents a surfel seen edge-on from vanishing:

    alpha_i = min(0.999, opacity_i exp(-min(u^2 + v^2, 2 d^2) / 2))     left out where alpha < 1 / 255
    weight_i = alpha_i product over j < i of (1 - alpha_j)

The rest is as in `gaussian_blend`. Colors and normals are weighted sums. With z the depths:

    distort = 2 sum over j < i of weight_i weight_j (z_i - z_j)
    median = z of the last surfel before which the transmittance is more than 1/2
"""

from types import ModuleType
from typing import Any

from ._blend import FAINTEST, MOST, OPAQUE


def surfel_blend(lang: ModuleType, *, fp: str, channels: int, tile_size: int, distorts: bool) -> Any:
    """Build the kernel that blends surfels. Its parameters, all of one float type unless noted:

        means2d     [m, 2]  pixels
        transforms  [m, 9]  of `surfel_projection`
        colors      [m, channels],  normals [m, 3],  depths [m],  opacities [m]
        ids, starts   int32, as in `gaussian_blend`
        image       [v, h, w, channels],  left [v, h, w],  seen_normals [v, h, w, 3],  distort, median [v, h, w]

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        channels: the number of channels, unrolled.
        tile_size: side of a tile, pixels.
        distorts: whether to compute `distort`, which is 0 otherwise.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    most, faintest, opaque = MOST, FAINTEST, OPAQUE
    meeting = build_ray_meeting(lang, fp=fp)

    @lang.kernel
    def surfel_blend(
        means2d: array,
        transforms: array,
        colors: array,
        normals: array,
        depths: array,
        opacities: array,
        ids: array,
        starts: array,
        image: array,
        left: array,
        seen_normals: array,
        distort: array,
        median: array,
    ):
        for v, y, x in lang.ndrange(image.shape[0], image.shape[1], image.shape[2]):
            row = v * (image.shape[1] // tile_size) + y // tile_size
            tile = row * (image.shape[2] // tile_size) + x // tile_size
            through = real(1.0)
            far, bent, middle = real(0.0), real(0.0), real(0.0)
            total = lang.Vector([0.0] * channels, dt=real)
            facing = lang.Vector([0.0] * 3, dt=real)
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                power, is_met = meeting(means2d, transforms, i, x + real(0.5), y + real(0.5))
                alpha = lang.min(real(most), opacities[i] * lang.exp(-power))
                if is_met and alpha >= real(faintest):
                    after = through * (real(1.0) - alpha)
                    if after <= real(opaque):
                        break
                    weight = alpha * through
                    for c in lang.static(range(channels)):
                        total[c] += weight * colors[i, c]
                    for c in lang.static(range(3)):
                        facing[c] += weight * normals[i, c]
                    if lang.static(distorts):
                        bent += 2 * (weight * depths[i] * (real(1.0) - through) - weight * far)
                        far += weight * depths[i]
                    if through > real(0.5):
                        middle = depths[i]
                    through = after
            left[v, y, x] = through
            distort[v, y, x] = bent
            median[v, y, x] = middle
            for c in lang.static(range(channels)):
                image[v, y, x, c] = total[c]
            for c in lang.static(range(3)):
                seen_normals[v, y, x, c] = facing[c]

    return surfel_blend


def build_ray_meeting(lang: ModuleType, *, fp: str) -> Any:
    """Build the function of a pixel's ray and a surfel: min(u^2 + v^2, 2 d^2) / 2, and whether the ray meets its
    plane.

    The planes x = px and y = py, which contain the ray, cut the surfel's plane in two lines that meet at (u, v).
    """
    real = getattr(lang, fp)

    @lang.func
    def meeting(means2d: lang.template(), transforms: lang.template(), i, px, py):
        c0, c1, c2 = transforms[i, 6], transforms[i, 7], transforms[i, 8]
        h0, h1, h2 = px * c0 - transforms[i, 0], px * c1 - transforms[i, 1], px * c2 - transforms[i, 2]
        k0, k1, k2 = py * c0 - transforms[i, 3], py * c1 - transforms[i, 4], py * c2 - transforms[i, 5]
        across, down, scale = h1 * k2 - h2 * k1, h2 * k0 - h0 * k2, h0 * k1 - h1 * k0
        is_met = scale != real(0.0)
        shrink = real(1.0) / lang.select(is_met, scale, real(1.0))
        s, t = across * shrink, down * shrink
        dx, dy = means2d[i, 0] - px, means2d[i, 1] - py
        return real(0.5) * lang.min(s * s + t * t, 2 * (dx * dx + dy * dy)), is_met

    return meeting
