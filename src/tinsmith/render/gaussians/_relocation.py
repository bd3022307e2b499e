"""Relocation: opacities and scales of several Gaussians at one position that together look like one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..._errors import ShapeError, refusal

_MOST_COPIES = 51  # as in gsplat; more copies of one Gaussian are treated as this many


def compute_relocation(
    opacities: Tensor, scales: Tensor, ratios: Tensor, binoms: Tensor | None = None, *, min_opacity: float = 0.005
) -> tuple[Tensor, Tensor]:
    """Compute opacities and scales of n Gaussians at one position that together look like one.

    Equation 9 of Kheradmand et al., 3D Gaussian Splatting as Markov Chain Monte Carlo (2024): along a line through its
    center, a Gaussian of standard deviation s and opacity o has the same total alpha as the n that replace it,

        integral of o exp(-x^2 / 2 s^2) dx = integral of 1 - (1 - p exp(-x^2 / 2 r^2))^n dx
        p = 1 - (1 - o)^(1 / n)
        r = s o / sum over k = 1 .. n of binomial(n, k) (-1)^(k - 1) p^k / sqrt(k)

    This is the paper's double sum over i and k with the sum over i evaluated: binomial(i - 1, k - 1) sums to
    binomial(n, k). It is computed in float64, since its terms alternate in sign.

    Args:
        opacities: (N), 0 to 1. No argument is differentiable.
        scales: (N, 3).
        ratios: (N), the number of copies of each, 1 to 51; larger numbers count as 51.
        binoms: gsplat's table of binomial coefficients. Not read: this function has its own.
        min_opacity: lower bound of the returned opacities. The scales belong to p without it, as in gsplat, whose
            strategy applies the bound to the result.

    Returns:
        The new opacities (N) and scales (N, 3).

    Raises:
        ShapeError: they do not fit each other.

    Example:
        >>> opacities, scales = torch.tensor([0.75]), torch.ones(1, 3)
        >>> ts.render.gaussians.compute_relocation(opacities, scales, torch.tensor([2]))
        (tensor([0.5000]), tensor([[0.9111, 0.9111, 0.9111]]))
    """
    del binoms
    n = len(opacities)
    if opacities.shape != (n,) or scales.shape != (n, 3) or ratios.shape != (n,):
        rows = [("opacities", f"[N] = {tuple(opacities.shape)}"), ("scales", f"[N, 3] = {tuple(scales.shape)}")]
        rows += [("ratios", f"[N] = {tuple(ratios.shape)}")]
        raise ShapeError(
            refusal(
                "the arguments of `compute_relocation` do not fit each other", rows, "Pass one row for each Gaussian."
            )
        )
    with torch.no_grad():
        o, count = opacities.double(), ratios.long().clamp(1, _MOST_COPIES)
        most = 1 - torch.finfo(torch.float32).eps  # the logit of 1 would be infinite
        p = 1 - (1 - o) ** (1 / count.double())
        factors = _make_signed_binomials(o.device)[count]
        powers = torch.arange(1, _MOST_COPIES + 1, device=o.device)
        spread = (factors * p[:, None] ** powers).sum(-1)
        new_opacities, new_scales = p.clamp(min_opacity, most), (o / spread)[:, None] * scales.double()
        return new_opacities.to(opacities.dtype), new_scales.to(scales.dtype)


def _make_signed_binomials(device: torch.device) -> Tensor:
    """Return the table with binomial(n, k) (-1)^(k - 1) / sqrt(k) at [n, k - 1], 0 if k > n. float64."""
    counts = range(1, _MOST_COPIES + 1)
    table = [[math.comb(n, k) * (-1) ** (k - 1) / math.sqrt(k) for k in counts] for n in range(_MOST_COPIES + 1)]
    return torch.tensor(table, dtype=torch.float64, device=device)
