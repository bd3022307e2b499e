"""The gradient of `tinsmith.kernels.splat`, written by hand, with which the generated one is compared.

It gathers: each Gaussian goes over its own pixels again. What the loop sums are moments of a and b; the parameters'
gradients follow from the sums, once a Gaussian. In the same letters as the kernel, with its functions.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

from typing import Any

from tinsmith.kernels._splat import INVERSE_FAINTEST, build_geometry


def splat_by_hand(lang: Any) -> Any:
    """Build the kernel of the gradient: parallel over Gaussians, without atomics and without a tape."""
    array = lang.types.ndarray()

    frame, rows, columns = build_geometry(lang)

    @lang.kernel
    def splat_by_hand(
        pos: array,
        scale: array,
        angle: array,
        color: array,
        opacity: array,
        grad_image: array,
        grad_pos: array,
        grad_scale: array,
        grad_angle: array,
        grad_color: array,
        grad_opacity: array,
    ):
        for i in range(pos.shape[0]):
            px, py, peak = pos[i, 0], pos[i, 1], opacity[i]
            if peak * INVERSE_FAINTEST > 1.0:
                ax, ay, bx, by = frame(scale[i, 0], scale[i, 1], angle[i])
                reach2 = 2.0 * lang.log(peak * INVERSE_FAINTEST)
                # With light = d loss / d log(alpha): sums over the pixels of light a, light b, light a^2, ...
                zero = peak - peak  # in the tensors' dtype, unlike a literal
                sum_a, sum_b, sum_aa, sum_ab, sum_bb = zero, zero, zero, zero, zero
                red, green, blue = zero, zero, zero
                top, bottom = rows(py, ax, ay, bx, by, reach2, grad_image.shape[0])
                for y in range(top, bottom):
                    dy = y + 0.5 - py
                    left, right = columns(px, dy, ax, ay, bx, by, reach2, grad_image.shape[1])
                    for x in range(left, right):
                        dx = x + 0.5 - px
                        a, b = ax * dx + ay * dy, bx * dx + by * dy
                        alpha = peak * lang.exp(-0.5 * (a * a + b * b))
                        more_red = alpha * grad_image[y, x, 0]
                        more_green = alpha * grad_image[y, x, 1]
                        more_blue = alpha * grad_image[y, x, 2]
                        light = more_red * color[i, 0] + more_green * color[i, 1] + more_blue * color[i, 2]
                        red, green, blue = red + more_red, green + more_green, blue + more_blue
                        sum_a, sum_b = sum_a + light * a, sum_b + light * b
                        sum_aa, sum_ab, sum_bb = sum_aa + light * a * a, sum_ab + light * a * b, sum_bb + light * b * b
                grad_pos[i, 0] = ax * sum_a + bx * sum_b
                grad_pos[i, 1] = ay * sum_a + by * sum_b
                grad_scale[i, 0] = sum_aa / scale[i, 0]
                grad_scale[i, 1] = sum_bb / scale[i, 1]
                grad_angle[i] = sum_ab * (scale[i, 0] / scale[i, 1] - scale[i, 1] / scale[i, 0])
                grad_color[i, 0], grad_color[i, 1], grad_color[i, 2] = red, green, blue
                grad_opacity[i] = (red * color[i, 0] + green * color[i, 1] + blue * color[i, 2]) / peak

    return splat_by_hand
