"""Blending of given pairs of Gaussians and pixels, in plain torch: slower than the kernels, and easy to change."""

from __future__ import annotations

import torch
from torch import Tensor

from .._ops import cast_to_single
from .._packed import check_floats, pack
from .._segments import accumulate as sums_along
from .._segments import exclusive_prod
from ._checks import require_last, require_positive, require_shape

_MOST = 0.999


def accumulate(
    means2d: Tensor,
    conics: Tensor,
    opacities: Tensor,
    colors: Tensor,
    gaussian_ids: Tensor,
    pixel_ids: Tensor,
    image_ids: Tensor,
    image_width: int,
    image_height: int,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Blend given pairs of a pixel and a Gaussian, in the given order.

    The formulas are those of `rasterize_to_pixels`, but all pairs are used: small alphas are kept, no pixel ends early.

    Args:
        means2d: (..., N, 2), pixels. Differentiable.
        conics: (..., N, 3): xx, xy, yy. Differentiable.
        opacities: (..., N). Differentiable.
        colors: (..., N, D). Differentiable.
        gaussian_ids: (M), integers from 0 to N - 1.
        pixel_ids: (M), integers: row * image_width + column.
        image_ids: (M), integers. Pairs are sorted by image and pixel, those of a pixel front to back.
        image_width: width of the images in pixels.
        image_height: height of the images in pixels.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Colors (..., image_height, image_width, D) and alphas (..., image_height, image_width, 1).

    Raises:
        ShapeError: tensors do not fit each other.
        ArgumentError: pairs are not sorted by image and pixel (checked on the CPU only).

    Example:
        >>> means2d, conics = torch.tensor([[[1.5, 0.5]]]), torch.tensor([[[1.0, 0.0, 1.0]]])
        >>> white, opacities = torch.ones(1, 1, 1), torch.tensor([[0.5]])
        >>> ids, pixels = torch.zeros(3).int(), torch.arange(3)
        >>> blend = ts.render.gaussians.accumulate
        >>> colors, alphas = blend(means2d, conics, opacities, white, ids, pixels, ids, 3, 1)
        >>> colors[0, 0, :, 0]
        tensor([0.3033, 0.5000, 0.3033])
    """
    function = "accumulate"
    given = {"means2d": means2d, "conics": conics, "opacities": opacities, "colors": colors}
    floats = {name: cast_to_single(tensor) for name, tensor in given.items()}
    check_floats(function, floats)
    image_width, image_height = require_positive(function, image_width=image_width, image_height=image_height)
    require_last(function, "means2d", means2d, "[..., N, 2]", (means2d.shape[-2] if means2d.ndim > 1 else 0, 2))
    front, n = means2d.shape[:-2], means2d.shape[-2]
    require_shape(function, "conics", conics, "[..., N, 3]", (*front, n, 3))
    require_shape(function, "opacities", opacities, "[..., N]", (*front, n))
    require_shape(function, "colors", colors, "[..., N, D]", (*front, n, *colors.shape[-1:]))
    for name, ids in {"pixel_ids": pixel_ids, "image_ids": image_ids}.items():
        require_shape(function, name, ids, "[M]", gaussian_ids.shape)
    pixel_ids, image_ids = pixel_ids.long(), image_ids.long()
    rows = image_ids * n + gaussian_ids
    pixel = torch.stack([pixel_ids % image_width, pixel_ids.div(image_width, rounding_mode="floor")], -1)
    apart = pixel + 0.5 - floats["means2d"].reshape(-1, 2).index_select(0, rows)
    xx, xy, yy = floats["conics"].reshape(-1, 3).index_select(0, rows).unbind(-1)
    dx, dy = apart.unbind(-1)
    power = 0.5 * (xx * dx * dx + yy * dy * dy) + xy * dx * dy
    peaks = floats["opacities"].reshape(-1).index_select(0, rows)
    alpha = (peaks * torch.exp(-power)).clamp(max=_MOST)
    n_pixels = image_width * image_height
    pairs = pack(image_ids * n_pixels + pixel_ids, front.numel() * n_pixels)
    weights = alpha * exclusive_prod(1 - alpha, pairs, engine=engine)
    shown = floats["colors"].flatten(0, -2).index_select(0, rows)
    images = sums_along(weights, shown, pairs, engine=engine)
    alphas = sums_along(weights, torch.ones_like(shown[:, :1]), pairs, engine=engine)
    return tuple(sums.view(*front, image_height, image_width, -1) for sums in (images, alphas))  # type: ignore[return-value]
