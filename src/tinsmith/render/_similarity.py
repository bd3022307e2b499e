"""Similarity of pictures: SSIM, and the loss of Gaussian splatting."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .._errors import ArgumentError, DtypeError, ShapeError, refusal

WINDOW = 11  # pixels, of a side
_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03


def ssim(images: Tensor, targets: Tensor, *, data_range: float = 1.0) -> Tensor:
    """Compute the mean structural similarity (SSIM) of each image to its target.

    Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural Similarity. IEEE
    Transactions on Image Processing 13 (4), 2004, equation 13:

        (2 m_x m_y + C1) (2 s_xy + C2) / ((m_x^2 + m_y^2 + C1) (s_x^2 + s_y^2 + C2))

    with means m, variances s^2 and covariance s_xy under a Gaussian window of 11 x 11 pixels with sigma 1.5 that lies
    within the image; C1 = (0.01 data_range)^2, C2 = (0.03 data_range)^2. The mean is over all positions of the
    window and over channels. The result is that of scikit-image's `structural_similarity` with `gaussian_weights=True`,
    `use_sample_covariance=False`.

    Args:
        images: (..., H, W, C), any number of channels, H and W at least 11. Differentiable.
        targets: shaped like the images. Differentiable.
        data_range: the largest possible value minus the smallest.

    Returns:
        (...), at most 1; equal images have 1.

    Raises:
        ArgumentError: `data_range` is not above 0.
        ShapeError: the images are of different shapes, or smaller than the window.
        DtypeError: they are not both float32 or both float64.

    Example:
        >>> image = torch.linspace(0, 1, 16 * 12 * 3).view(16, 12, 3)
        >>> ts.render.ssim(image, image), ts.render.ssim(image, image.flip(0)) < 0.5
        (tensor(1.), tensor(True))
    """
    _check("ssim", images, targets)
    if not data_range > 0:
        remedy = "Pass 1.0 for images from 0 to 1."
        raise ArgumentError(refusal("`data_range` of `ssim` is not above 0", [("got", repr(data_range))], remedy))
    channels = [side.movedim(-1, -3) for side in (images, targets)]
    x, y = (side.reshape(-1, *side.shape[-2:]) for side in channels)
    mean_x, mean_y, square_x, square_y, product = _average_window(torch.stack([x, y, x * x, y * y, x * y]))
    variances, covariance = square_x - mean_x**2 + square_y - mean_y**2, product - mean_x * mean_y
    c1, c2 = (_K1 * data_range) ** 2, (_K2 * data_range) ** 2
    alike = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    values = alike / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))
    return values.view(*images.shape[:-3], -1).mean(-1)


def l1_ssim_loss(images: Tensor, targets: Tensor, *, ssim_weight: float = 0.2) -> Tensor:
    """Compute the loss of 3-D Gaussian splatting: absolute differences and structural dissimilarity.

        loss = (1 - ssim_weight) mean |image - target| + ssim_weight (1 - mean SSIM)

    Args:
        images: (..., H, W, C), values from 0 to 1, H and W at least 11. Differentiable.
        targets: shaped like the images. Differentiable.
        ssim_weight: from 0 to 1; Kerbl et al. (2023) use 0.2. At 0 no SSIM is computed.

    Returns:
        The loss, a 0-d tensor.

    Raises:
        ArgumentError: `ssim_weight` is not from 0 to 1.
        ShapeError, DtypeError: as `ssim`.

    Example:
        >>> target = torch.rand(2, 16, 16, 3)
        >>> image = torch.zeros_like(target, requires_grad=True)
        >>> ts.render.l1_ssim_loss(image, target).backward()
        >>> (image.grad <= 0).all()
        tensor(True)
    """
    if not 0 <= ssim_weight <= 1:
        rows = [("got", repr(ssim_weight)), ("expected", "0 to 1")]
        remedy = "Pass another ssim_weight."
        raise ArgumentError(refusal("`ssim_weight` of `l1_ssim_loss` is out of range", rows, remedy))
    _check("l1_ssim_loss", images, targets)
    loss = (1 - ssim_weight) * (images - targets).abs().mean()
    return loss + ssim_weight * (1 - ssim(images, targets).mean()) if ssim_weight else loss


def _check(function: str, images: Tensor, targets: Tensor) -> None:
    if images.shape != targets.shape or images.ndim < 3 or min(images.shape[-3:-1]) < WINDOW:
        rows = [("images", f"[..., H, W, C] = {tuple(images.shape)}"), ("targets", str(tuple(targets.shape)))]
        remedy = f"Pass images of one shape, with sides of {WINDOW} pixels or more."
        raise ShapeError(refusal(f"`images` and `targets` of `{function}` have the wrong shapes", rows, remedy))
    if images.dtype != targets.dtype or images.dtype not in (torch.float32, torch.float64):
        rows = [("images", str(images.dtype)), ("targets", str(targets.dtype))]
        remedy = "Pass both in one of these dtypes; 8-bit pixels as `pixels / 255`."
        words = f"`images` and `targets` of `{function}` are not both float32 or both float64"
        raise DtypeError(refusal(words, rows, remedy))


def _average_window(x: Tensor) -> Tensor:
    """Average (k, channels, rows, columns) under the Gaussian window, at each position within the image."""
    places = torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2
    bell = torch.exp(-places.square() / (2 * _SIGMA**2))
    bell = bell / bell.sum()
    one_by_one = x.reshape(-1, 1, *x.shape[-2:])
    means = functional.conv2d(functional.conv2d(one_by_one, bell.view(1, 1, -1, 1)), bell.view(1, 1, 1, -1))
    return means.view(*x.shape[:-2], *means.shape[-2:])
