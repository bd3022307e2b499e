"""MCMCStrategy: Gaussians as samples of a Markov chain, which are moved by noise, and relocated if they are faint."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._relocation import compute_relocation
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
