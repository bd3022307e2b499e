"""SSIM: the structural similarity of two pictures."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

WINDOW = 11  # pixels, of a side
_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03


def ssim(picture: Tensor, target: Tensor) -> float:
    """The mean structural similarity of pictures (rows, columns, channels) from 0 to 1, the range being 1.

    Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural Similarity. IEEE
    Transactions on Image Processing 13 (4), 2004, equation 13:

        (2 m_x m_y + C1) (2 s_xy + C2) / ((m_x^2 + m_y^2 + C1) (s_x^2 + s_y^2 + C2))

    with means m, variances s^2 and covariance s_xy under a Gaussian window of 11 x 11 pixels, of sigma 1.5, that lies
    wholly within the picture; C1 = 0.01^2, C2 = 0.03^2. The mean is over all places of the window and over channels.

    Raises:
        ValueError: a picture smaller than the window.
    """
    if picture.shape != target.shape or min(picture.shape[:2]) < WINDOW:
        raise ValueError(
            f"SSIM needs two pictures of one size, {WINDOW} pixels or more: {picture.shape}, {target.shape}"
        )
    x, y = (side.double().permute(2, 0, 1)[:, None] for side in (picture, target))
    mean_x, mean_y = _windowed(x), _windowed(y)
    variance_x, variance_y = _windowed(x * x) - mean_x**2, _windowed(y * y) - mean_y**2
    covariance = _windowed(x * y) - mean_x * mean_y
    c1, c2 = _K1**2, _K2**2
    alike = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    return (alike / ((mean_x**2 + mean_y**2 + c1) * (variance_x + variance_y + c2))).mean().item()


def _windowed(x: Tensor) -> Tensor:
    """Means under the window, of (channels, 1, rows, columns)."""
    places = torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2
    bell = torch.exp(-places.square() / (2 * _SIGMA**2))
    bell = bell / bell.sum()
    return functional.conv2d(functional.conv2d(x, bell.view(1, 1, -1, 1)), bell.view(1, 1, 1, -1))
