"""The reference of splatting anisotropic 2-D Gaussians into an image: all Gaussians in all pixels, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def splat(pos: Tensor, scale: Tensor, angle: Tensor, color: Tensor, opacity: Tensor, *, h: int, w: int) -> Tensor:
    """Render an image as the sum of anisotropic 2-D Gaussians.

    With (dx, dy) from a Gaussian's center to a pixel's, rotated to the Gaussian's axes:

        a = ( cos(angle) dx + sin(angle) dy) / scale_x
        b = (-sin(angle) dx + cos(angle) dy) / scale_y
        alpha = opacity exp(-(a^2 + b^2) / 2)                 0 where alpha < 1 / 255
        image = sum over all Gaussians of alpha color

    Args:
        pos: (n, 2), centers (x, y) in pixels; that of the pixel in row i, column j is (j + 0.5, i + 0.5).
        scale: (n, 2), standard deviations along the two axes in pixels, positive.
        angle: (n), the angle from the image's x axis to the Gaussian's first axis, in radians, towards +y.
        color: (n, 3), of any sign.
        opacity: (n), alpha at the center. A Gaussian whose opacity is less than 1/255 is not drawn.
        h: number of rows of the image.
        w: number of columns of the image.

    Returns:
        (h, w, 3). Differentiable in every tensor; which pixels are left out is not differentiated.

    Example:
        >>> one = torch.ones(1)
        >>> splat(one[:, None].expand(1, 2), one[:, None].expand(1, 2), one, torch.ones(1, 3), one, h=2, w=2)[..., 0]
        tensor([[0.7788, 0.7788],
                [0.7788, 0.7788]])
    """
    y, x = torch.meshgrid(
        torch.arange(h, dtype=pos.dtype, device=pos.device) + 0.5,
        torch.arange(w, dtype=pos.dtype, device=pos.device) + 0.5,
        indexing="ij",
    )
    dx, dy = x - pos[:, 0, None, None], y - pos[:, 1, None, None]
    c, s = angle.cos()[:, None, None], angle.sin()[:, None, None]
    a = (c * dx + s * dy) / scale[:, 0, None, None]
    b = (c * dy - s * dx) / scale[:, 1, None, None]
    alpha = opacity[:, None, None] * torch.exp(-0.5 * (a * a + b * b))
    alpha = torch.where(alpha * 255 < 1, 0.0, alpha)
    return torch.einsum("nhw,nc->hwc", alpha, color)
