"""How strongly the pixels pull on the centers of 2-D Gaussians: the sum over pixels of the gradient's
absolute value.

This is not the gradient of any output of `gaussian_blend`, so it is written by hand. It goes from front to back as
blending does: what is seen behind a Gaussian is the image minus what was seen up to it. With c the cotangent of the
image, s that of the transmittance, and behind_i = c image - sum over j <= i of weight_j (c color_j):

    slope_i = through_i (c color_i) - (behind_i + s left) / (1 - alpha_i)       by alpha_i
    absolute_i = sum over pixels of |slope_i alpha_i conic_i d|
"""

from types import ModuleType
from typing import Any

from ._blend import MOST, OPAQUE, build_alpha_at_pixel


def gaussian_absolute(lang: ModuleType, *, fp: str, channels: int, tile_size: int) -> Any:
    """Build the kernel of absolute gradients. Its parameters are those of `gaussian_blend`, and

    c_image  [v, h, w, d],  c_left [v, h, w]  cotangents
    absolute [m, 2]  starts at zero
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    most, opaque = MOST, OPAQUE
    at_pixel = build_alpha_at_pixel(lang, fp=fp)

    @lang.kernel
    def gaussian_absolute(
        means2d: array,
        conics: array,
        colors: array,
        opacities: array,
        ids: array,
        starts: array,
        image: array,
        left: array,
        c_image: array,
        c_left: array,
        absolute: array,
    ):
        for v, y, x in lang.ndrange(image.shape[0], image.shape[1], image.shape[2]):
            row = v * (image.shape[1] // tile_size) + y // tile_size
            tile = row * (image.shape[2] // tile_size) + x // tile_size
            through = real(1.0)
            behind = left[v, y, x] * c_left[v, y, x]
            for c in lang.static(range(channels)):
                behind += image[v, y, x, c] * c_image[v, y, x, c]
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                dx, dy, peak, is_seen = at_pixel(means2d, conics, opacities, i, x, y)
                alpha = lang.min(real(most), peak)
                if is_seen:
                    after = through * (real(1.0) - alpha)
                    if after <= real(opaque):
                        break
                    gain = real(0.0)
                    for c in lang.static(range(channels)):
                        gain += colors[i, c] * c_image[v, y, x, c]
                    behind -= alpha * through * gain
                    if peak < real(most):
                        pull = (through * gain - behind / (real(1.0) - alpha)) * alpha
                        absolute[i, 0] += lang.abs(pull * (conics[i, 0] * dx + conics[i, 1] * dy))
                        absolute[i, 1] += lang.abs(pull * (conics[i, 1] * dx + conics[i, 2] * dy))
                    through = after

    return gaussian_absolute
