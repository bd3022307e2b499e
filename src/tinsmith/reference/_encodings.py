"""References of tiny-cuda-nn's encodings of positions and directions, in plain torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def frequency(x: Tensor, n_frequencies: int = 12) -> Tensor:
    """Encode each number by sines and cosines, each frequency twice the previous one.

    With k from 0 to n_frequencies - 1:   y = sin(2^k pi x), cos(2^k pi x)

    Args:
        x: (..., dim). Differentiable.
        n_frequencies: the number of frequencies.

    Returns:
        (..., dim 2 n_frequencies), ordered by dim, then by frequency, then sin before cos.

    Example:
        >>> frequency(torch.tensor([0.5]), 2).round(decimals=3).abs()
        tensor([1., 0., 0., 1.])
    """
    k = torch.arange(n_frequencies, dtype=x.dtype, device=x.device)
    angle = math.pi * 2**k * x[..., None]
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-3)


def triangle_wave(x: Tensor, n_frequencies: int = 12) -> Tensor:
    """Encode each number by triangle waves, each with twice the previous frequency and shifted by another quarter.

    With k from 0 to n_frequencies - 1 and turns = 2^(k - 1) x + k / 4:

        y = 4 |turns - floor(turns) - 1/2| - 1

    Args:
        x: (..., dim). Differentiable; the derivative is 0 at the corners and 2^(k + 1) or its negative elsewhere.
        n_frequencies: the number of frequencies.

    Returns:
        (..., dim n_frequencies), in [-1, 1], ordered by dim, then by frequency.

    Example:
        >>> triangle_wave(torch.tensor([0.0, 0.5]), 1)
        tensor([1., 0.])
    """
    k = torch.arange(n_frequencies, dtype=x.dtype, device=x.device)
    turns = 2 ** (k - 1) * x[..., None] + k / 4
    return (4 * (turns - turns.detach().floor() - 0.5).abs() - 1).flatten(-2)


def one_blob(x: Tensor, n_bins: int = 16) -> Tensor:
    """Encode each number by the integrals of a kernel around it over equal bins of [0, 1], which wraps around.

    The kernel is quartic, 15/16 (1 - u^2)^2, with a radius of one bin, u = n_bins (position - x). Its integral up to u
    is

        F(u) = u (15 - 10 u^2 + 3 u^4) / 16 + 1/2        with u clamped to [-1, 1]

    and bin k has the integral between its boundaries k / n_bins and (k + 1) / n_bins. The part beyond 1 continues at 0.

    Args:
        x: (..., dim), in [0, 1]. Differentiable; the second derivative is continuous too.
        n_bins: the number of bins; tiny-cuda-nn supports only powers of two.

    Returns:
        (..., dim n_bins), ordered by dim, then by bin. The bins of each dim sum to 1.

    Example:
        >>> one_blob(torch.tensor([0.5]), 4)
        tensor([0.0000, 0.5000, 0.5000, 0.0000])
    """
    boundary = torch.arange(n_bins + 1, dtype=x.dtype, device=x.device) / n_bins - x[..., None]
    below = sum(_integrate_kernel(n_bins * (boundary + turn)) for turn in (-1, 0, 1))
    return torch.as_tensor(below).diff(dim=-1).flatten(-2)


def _integrate_kernel(u: Tensor) -> Tensor:
    u = u.clamp(-1, 1)
    return u * (15 - 10 * u**2 + 3 * u**4) / 16 + 0.5


def spherical_harmonics(x: Tensor, degree: int = 4) -> Tensor:
    """Evaluate the real spherical harmonics of directions, with tiny-cuda-nn's signs.

    With the direction (dx, dy, dz) = 2 x - 1, and for l from 0 to degree - 1 and m from 0 to l

        y[l^2 + l + m] = (-1)^m N P(l, m)(dz) Re (dx + i dy)^m
        y[l^2 + l - m] = (-1)^m N P(l, m)(dz) Im (dx + i dy)^m      for m > 0

        P(m, m) = 1 3 5 ... (2 m - 1),   (l - m) P(l, m) = (2 l - 1) dz P(l - 1, m) - (l + m - 1) P(l - 2, m)
        N^2 = (2 l + 1) / (4 pi) (l - m)! / (l + m)!, twice that for m > 0

    so that they are orthonormal on the sphere. Directions of another length than 1 are not normalized.

    Args:
        x: (..., 3), (direction + 1) / 2. Differentiable.
        degree: 1 to 8.

    Returns:
        (..., degree^2).

    Example:
        >>> spherical_harmonics(torch.tensor([0.5, 0.5, 1.0]), 2)
        tensor([0.2821, -0.0000, 0.4886, -0.0000])
    """
    dx, dy, dz = (2 * x - 1).unbind(-1)
    harmonics = [torch.zeros_like(dx)] * degree**2
    re, im = 1 + 0 * dx, 0 * dx  # depend on x even for degree 1, so that there is a gradient
    for m in range(degree):
        below, legendre = torch.zeros_like(dx), torch.ones_like(dx) * math.prod(range(1, 2 * m, 2))
        for n in range(m, degree):
            if n > m:
                below, legendre = legendre, ((2 * n - 1) * dz * legendre - (n + m - 1) * below) / (n - m)
            scaled = (-1) ** m * _compute_norm(n, m) * legendre
            harmonics[n * n + n + m] = scaled * re
            if m > 0:
                harmonics[n * n + n - m] = scaled * im
        re, im = re * dx - im * dy, re * dy + im * dx
    return torch.stack(harmonics, dim=-1)


def _compute_norm(n: int, m: int) -> float:
    both = 2 if m else 1
    return math.sqrt(both * (2 * n + 1) / (4 * math.pi) * math.factorial(n - m) / math.factorial(n + m))
