"""PropNetEstimator: sampling guided by proposal networks, as nerfacc's estimator of this name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..._errors import ArgumentError, ShapeError, refusal
from ..._integers import read_count
from .._resampling import proposal_loss
from ._resampling import importance_sampling
from ._samples import RayIntervals
from ._volrend import render_transmittance_from_density

_TYPES = ("uniform", "lindisp")


class PropNetEstimator(nn.Module):
    """An estimator that samples rays where proposal networks predict density, and trains these networks.

    It corresponds to nerfacc's estimator of this name.

    Args:
        optimizer: the optimizer of the proposal networks; needed by `update_every_n_steps`.
        scheduler: the scheduler of its learning rate.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Attributes:
        prop_cache: for each proposal since the last update, its intervals and its cumulative weights.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> estimator = nerfacc.PropNetEstimator()
        >>> def near_the_camera(t_starts, t_ends):
        ...     return torch.where(t_starts < 1, 5.0, 0.0)
        >>> t_starts, t_ends = estimator.sampling([near_the_camera], [8], 4, 1, 0.0, 8.0, "uniform")
        >>> bool((t_starts < 2).sum() >= 3)
        True
    """

    _dummy: Tensor

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | None = None,
        scheduler: Any = None,
        *,
        engine: str | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("_dummy", torch.empty(0), persistent=False)  # follows `.to(device)`
        self.optimizer, self.scheduler, self.engine = optimizer, scheduler, engine
        self.prop_cache: list[tuple[RayIntervals, Tensor | None]] = []

    @property
    def device(self) -> torch.device:
        """The device of the samples."""
        return self._dummy.device

    @torch.no_grad()
    def sampling(
        self,
        prop_sigma_fns: Sequence[Callable[[Tensor, Tensor], Tensor]],
        prop_samples: Sequence[int],
        num_samples: int,
        n_rays: int,
        near_plane: float,
        far_plane: float,
        sampling_type: Literal["uniform", "lindisp"] = "lindisp",
        stratified: bool = False,
        requires_grad: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Sample rays by the cumulative weights of proposal networks, one after the other.

        Args:
            prop_sigma_fns: each maps t_starts and t_ends (n_rays, n_samples) to densities of this shape.
            prop_samples: the number of samples of each proposal.
            num_samples: the number of samples that are returned.
            n_rays: the number of rays.
            near_plane: the t at which rays start.
            far_plane: the t at which rays end.
            sampling_type: "uniform" in t, or "lindisp", uniform in 1 / t.
            stratified: draw one offset for each ray and proposal.
            requires_grad: record the proposals for their loss.

        Returns:
            t_starts and t_ends, (n_rays, num_samples). Not differentiable.

        Raises:
            ArgumentError: an argument is out of range.
            ShapeError: a function returned another shape.
        """
        _check_sampling(prop_sigma_fns, prop_samples, sampling_type, near_plane)
        n_rays = read_count("n_rays", "`PropNetEstimator.sampling`", n_rays)
        cdfs = torch.tensor([0.0, 1.0], device=self.device).expand(n_rays, 2)
        intervals = RayIntervals(cdfs)
        for number, (sigma_fn, count) in enumerate(zip(prop_sigma_fns, prop_samples, strict=True)):
            intervals, _ = importance_sampling(intervals, cdfs, count, stratified, engine=self.engine)
            t_starts, t_ends = _map_edges(sampling_type, intervals.vals, near_plane, far_plane)
            with torch.set_grad_enabled(requires_grad):
                sigmas = sigma_fn(t_starts, t_ends)
                if sigmas.shape != t_starts.shape:
                    rows = [("expected", str(tuple(t_starts.shape))), ("got", str(tuple(sigmas.shape)))]
                    remedy = "Return one density for each sample; `.squeeze(-1)` removes a last dim of 1."
                    raise ShapeError(refusal(f"`prop_sigma_fns[{number}]` returned another shape", rows, remedy))
                cdfs = _cumulate(render_transmittance_from_density(t_starts, t_ends, sigmas)[0])
                if requires_grad:
                    self.prop_cache.append((intervals, cdfs))
        intervals, _ = importance_sampling(intervals, cdfs, num_samples, stratified, engine=self.engine)
        if requires_grad:
            self.prop_cache.append((intervals, None))
        return _map_edges(sampling_type, intervals.vals, near_plane, far_plane)

    @torch.enable_grad()
    def compute_loss(self, trans: Tensor, loss_scaler: float = 1.0) -> Tensor:
        """Compute the loss of the recorded proposals, and clear the record. See `tinsmith.render.proposal_loss`.

        Args:
            trans: (n_rays, num_samples), the transmittance of the samples. Not differentiable here.
            loss_scaler: a factor.

        Returns:
            (), the sum over proposals of the mean over all intervals. Differentiable in what the proposals returned.
        """
        if not self.prop_cache:
            return torch.zeros((), device=self.device)
        intervals, _ = self.prop_cache.pop()
        cdfs = _cumulate(trans).detach()
        loss = torch.zeros((), device=self.device)
        while self.prop_cache:
            proposed, proposed_cdfs = self.prop_cache.pop()
            assert proposed_cdfs is not None
            losses = proposal_loss(intervals.vals, cdfs, proposed.vals, proposed_cdfs, engine=self.engine)
            loss = loss + losses.sum() / trans.numel()
        return loss * loss_scaler

    @torch.enable_grad()
    def update_every_n_steps(self, trans: Tensor, requires_grad: bool = False, loss_scaler: float = 1.0) -> float:
        """Train the proposals by one step if `requires_grad` is set, as it was in `sampling`.

        Args:
            trans: (n_rays, num_samples), the transmittance of the samples.
            requires_grad: False only steps the scheduler.
            loss_scaler: a factor of the loss.

        Returns:
            The loss.

        Raises:
            ArgumentError: there is no optimizer, or `sampling` was not called with `requires_grad`.
        """
        loss = 0.0
        if requires_grad:
            if self.optimizer is None or not self.prop_cache:
                rows = [("optimizer", type(self.optimizer).__name__), ("proposals", str(len(self.prop_cache)))]
                remedy = "Make the estimator with an optimizer, and call `sampling` with requires_grad=True first."
                words = "The PropNetEstimator has no optimizer, or nothing to train from"
                raise ArgumentError(refusal(words, rows, remedy))
            proposed = self.compute_loss(trans, loss_scaler)
            self.optimizer.zero_grad()
            proposed.backward()
            self.optimizer.step()
            loss = proposed.item()
        if self.scheduler is not None:
            self.scheduler.step()
        return loss


def get_proposal_requires_grad_fn(target: float = 5.0, num_steps: int = 1000) -> Callable[[int], bool]:
    """Build a function that returns True in the steps that should train proposals, as nerfacc's function of this name.

    The number of steps between two of them grows from 0 to `target` over the first `num_steps` steps.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> requires_grad = nerfacc.get_proposal_requires_grad_fn(target=2.0, num_steps=4)
        >>> [requires_grad(step) for step in range(8)]
        [False, True, False, True, False, False, True, False]
    """
    steps_since = 0

    def proposal_requires_grad_fn(step: int) -> bool:
        nonlocal steps_since
        requires_grad = steps_since > min(step / num_steps, 1.0) * target
        steps_since = 1 if requires_grad else steps_since + 1
        return requires_grad

    return proposal_requires_grad_fn


def _cumulate(trans: Tensor) -> Tensor:
    """Convert transmittance to cumulative weights, (n_rays, n_samples + 1). The last one is set to 1."""
    return 1 - torch.cat([trans, torch.zeros_like(trans[:, :1])], -1)


def _map_edges(kind: str, shares: Tensor, near: float | Tensor, far: float | Tensor) -> tuple[Tensor, Tensor]:
    """Convert edges from 0 to 1 to starts and ends of intervals, by the sampling type `kind`."""
    if kind == "uniform":
        edges = shares * far + (1 - shares) * near
    else:
        edges = 1 / (shares * (1 / far) + (1 - shares) * (1 / near))
    return edges[..., :-1], edges[..., 1:]


def _check_sampling(functions: Sequence[Any], samples: Sequence[int], kind: str, near: float | Tensor) -> None:
    if len(functions) != len(samples):
        rows = [("prop_sigma_fns", str(len(functions))), ("prop_samples", str(len(samples)))]
        remedy = "Pass one number for each."
        raise ArgumentError(refusal("`sampling` needs a number of samples for each proposal", rows, remedy))
    if kind not in _TYPES:
        rows = [("expected", ", ".join(map(repr, _TYPES))), ("got", repr(kind))]
        raise ArgumentError(refusal("`sampling_type` has an unknown value", rows, "Pass one of them."))
    if kind == "lindisp" and not isinstance(near, Tensor) and not near > 0:
        rows = [("expected", 'a positive number with sampling_type="lindisp"'), ("got", repr(near))]
        raise ArgumentError(refusal("`near_plane` is out of range", rows, 'Pass sampling_type="uniform" for 0.'))
