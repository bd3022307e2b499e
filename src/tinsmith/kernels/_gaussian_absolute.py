"""How much the pixels, each by itself, want to move 2-D Gaussians: the gradient by centres, of absolute values.

What `gaussian_blend` computes has no such gradient, so this is by hand. It goes from front to back as blending does:
what is seen behind a Gaussian is the image less what was seen up to it. With c the cotangent of the image, s that of
what shines through, and behind_i = c image - sum over j <= i of weight_j (c color_j):

    slope_i = through_i (c color_i) - (behind_i + s left) / (1 - alpha_i)       by alpha_i
    absolute_i = sum over pixels of |slope_i alpha_i conic_i d|
"""

from types import ModuleType
from typing import Any

from ._gaussian_blend import FAINTEST, MOST, OPAQUE


def gaussian_absolute(lang: ModuleType, *, fp: str, tile_size: int) -> Any:
    """Build the kernel for an engine. Its parameters are those of `gaussian_blend`, any number of channels, and

    c_image  [v, h, w, d],  c_left [v, h, w]  cotangents
    absolute [m, 2]  starts at zero
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    most, faintest, opaque = MOST, FAINTEST, OPAQUE

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
            for c in range(colors.shape[1]):
                behind += image[v, y, x, c] * c_image[v, y, x, c]
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                dx, dy = means2d[i, 0] - (x + real(0.5)), means2d[i, 1] - (y + real(0.5))
                power = real(0.5) * (conics[i, 0] * dx * dx + conics[i, 2] * dy * dy) + conics[i, 1] * dx * dy
                peak = opacities[i] * lang.exp(-power)
                alpha = lang.min(real(most), peak)
                if power >= real(0.0) and alpha >= real(faintest):
                    after = through * (real(1.0) - alpha)
                    if after <= real(opaque):
                        break
                    gain = real(0.0)
                    for c in range(colors.shape[1]):
                        gain += colors[i, c] * c_image[v, y, x, c]
                    behind -= alpha * through * gain
                    if peak < real(most):
                        pull = (through * gain - behind / (real(1.0) - alpha)) * alpha
                        absolute[i, 0] += lang.abs(pull * (conics[i, 0] * dx + conics[i, 1] * dy))
                        absolute[i, 1] += lang.abs(pull * (conics[i, 1] * dx + conics[i, 2] * dy))
                    through = after

    return gaussian_absolute
