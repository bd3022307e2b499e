"""MCMCStrategy: Gaussians as samples of a Markov chain, which are moved by noise, and relocated if they are faint.

Relocation gives several Gaussians at one position the opacities and scales that together look like one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..._errors import ShapeError, refusal
from ._surgery import (
    Optimizers,
    Params,
    change_rows,
    check_params,
    draw_normal,
    overwrite_rows,
    rotate,
    sample_by_weight,
)

_GROWTH = 1.05
_NOISE_STEEPNESS, _NOISE_OPACITY = 100.0, 0.005  # noise fades out above this opacity: the paper's numbers


@dataclass
class MCMCStrategy:
    """A strategy that relocates faint Gaussians to others, adds Gaussians up to a maximum, and adds noise to the means.

    The strategy of Kheradmand et al., 3D Gaussian Splatting as Markov Chain Monte Carlo (2024), with the options, names
    and defaults of gsplat 1.5. Every `refine_every` steps between `refine_start_iter` and `refine_stop_iter`,
    Gaussians with an opacity of at most `min_opacity` are moved onto others, drawn with probabilities proportional to
    their opacities, and 5 % are added in the same way, up to `cap_max`. A Gaussian onto which n others are moved is
    changed so that together they look like it before (`compute_relocation`). In each step, with covariance S, opacity o
    and e standard normal:

        mean := mean + lr noise_lr sigmoid(-100 (o - 0.005)) S e

    Add the paper's losses on opacities and scales to your own: `0.01 * opacity.mean() + 0.01 * scale.mean()`.

    Attributes:
        cap_max: the largest number of Gaussians.
        noise_lr: the strength of the noise.
        refine_start_iter: no relocation up to this step.
        refine_stop_iter: no relocation from this step on.
        refine_every: steps between relocations.
        min_opacity: Gaussians with at most this opacity are relocated.
        verbose: print the changes.
        generator: the random generator; None for torch's default. Not in gsplat.

    Example:
        >>> params = {
        ...     "means": torch.nn.Parameter(torch.zeros(2, 3)),
        ...     "scales": torch.nn.Parameter(torch.zeros(2, 3)),
        ...     "quats": torch.nn.Parameter(torch.tensor([[1.0, 0, 0, 0]] * 2)),
        ...     "opacities": torch.nn.Parameter(torch.tensor([0.75, 0.001]).logit()),
        ... }
        >>> optimizers = {name: torch.optim.Adam([one]) for name, one in params.items()}
        >>> strategy = ts.render.gaussians.MCMCStrategy(cap_max=2, refine_start_iter=0, refine_every=1)
        >>> strategy.check_sanity(params, optimizers)
        >>> state = strategy.initialize_state()
        >>> strategy.step_post_backward(params, optimizers, state, 1, {}, lr=1e-4)
        >>> params["opacities"].sigmoid()
        tensor([0.5000, 0.5000], grad_fn=<SigmoidBackward0>)
    """

    cap_max: int = 1_000_000
    noise_lr: float = 5e5
    refine_start_iter: int = 500
    refine_stop_iter: int = 25_000
    refine_every: int = 100
    min_opacity: float = 0.005
    verbose: bool = False
    generator: torch.Generator | None = None

    def initialize_state(self) -> dict[str, Any]:
        """Return the initial state, a dict that is empty for this strategy."""
        return {}

    def check_sanity(self, params: Params, optimizers: Optimizers) -> None:
        """Raise an error unless the other methods can work with these parameters and optimizers: see `DefaultStrategy`.

        Raises:
            ArgumentError, ShapeError: a parameter or an optimizer is missing or does not fit.
        """
        check_params("MCMCStrategy", params, optimizers)

    def step_pre_backward(
        self,
        params: Params,
        optimizers: Optimizers,
        state: MutableMapping[str, Any],
        step: int,
        info: Mapping[str, Any],
    ) -> None:
        """Do nothing. It exists so that strategies are interchangeable."""

    def step_post_backward(
        self,
        params: Params,
        optimizers: Optimizers,
        state: MutableMapping[str, Any],
        step: int,
        info: Mapping[str, Any],
        lr: float,
    ) -> None:
        """Move faint Gaussians and add others when due, and add noise to the means. Call after the optimizers' steps.

        Args:
            params: as for `check_sanity`; parameters are replaced by larger ones.
            optimizers: as for `check_sanity`; updated to the new parameters.
            state: from `initialize_state`.
            step: the index of the step, from 0.
            info: from `rasterization`; it is not read.
            lr: the learning rate of the means in this step.
        """
        if self.refine_start_iter < step < self.refine_stop_iter and step % self.refine_every == 0:
            relocated = self._relocate(params, optimizers)
            added = self._add(params, optimizers, state)
            if self.verbose:
                changes = f"{relocated} Gaussians relocated, {added} added"
                print(f"Step {step}: {changes}. Now there are {len(params['means'])}.")  # noqa: T201  # it was asked for
        self._add_noise(params, lr * self.noise_lr)

    @torch.no_grad()
    def _relocate(self, params: Params, optimizers: Optimizers) -> int:
        opacities = params["opacities"].flatten().sigmoid()
        is_dead = opacities <= self.min_opacity
        dead, alive = is_dead.nonzero()[:, 0], (~is_dead).nonzero()[:, 0]
        if not len(dead) or not len(alive):
            return 0
        drawn = alive[sample_by_weight(opacities[alive], len(dead), self.generator)]
        self._thin_out(params, optimizers, drawn)
        names = tuple(params)
        overwrite_rows(params, optimizers, names, dead, lambda name, _: params[name][drawn])
        return len(dead)

    @torch.no_grad()
    def _add(self, params: Params, optimizers: Optimizers, state: MutableMapping[str, Any]) -> int:
        count = len(params["means"])
        added = min(self.cap_max, int(_GROWTH * count)) - count
        if added <= 0:
            return 0
        drawn = sample_by_weight(params["opacities"].flatten().sigmoid(), added, self.generator)
        self._thin_out(params, optimizers, drawn)
        everyone = torch.arange(count, device=drawn.device)
        change_rows(params, optimizers, state, everyone, drawn)
        return added

    def _thin_out(self, params: Params, optimizers: Optimizers, drawn: Tensor) -> None:
        """Change opacities and scales of the drawn Gaussians so that each one with its copies looks as before."""
        rows, copies = drawn.unique(return_counts=True)
        opacities, scales = compute_relocation(
            params["opacities"][rows].flatten().sigmoid(),
            params["scales"][rows].exp(),
            copies + 1,
            min_opacity=self.min_opacity,
        )
        changed = {"opacities": opacities.logit(), "scales": scales.log()}

        def new_values(name: str, old: Tensor) -> Tensor:
            return changed[name].view_as(old) if name in changed else old

        overwrite_rows(params, optimizers, tuple(params), rows, new_values)

    @torch.no_grad()
    def _add_noise(self, params: Params, strength: float) -> None:
        means, quats = params["means"], params["quats"]
        variances = (2 * params["scales"]).exp()
        opacities = params["opacities"].flatten().sigmoid()
        noise = draw_normal(tuple(means.shape), means, self.generator)
        noise = noise * strength * torch.sigmoid(-_NOISE_STEEPNESS * (opacities - _NOISE_OPACITY))[:, None]
        inverse = quats * quats.new_tensor([1, -1, -1, -1])
        means.add_(rotate(quats, variances * rotate(inverse, noise)))


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
        remedy = "Pass one row for each Gaussian."
        raise ShapeError(refusal("the arguments of `compute_relocation` do not fit each other", rows, remedy))
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
