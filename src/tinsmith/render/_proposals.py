"""Proposals: cheap fields that say where along rays an expensive field is asked, and learn from its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._errors import ArgumentError, ShapeError, refusal
from ._course import Jitter
from ._resampling import importance_sampling, proposal_loss

_SPACINGS = ("uniform", "lindisp")


@dataclass(frozen=True)
class ProposalSamples:
    """Where rays are sampled, as many times each, and what the proposals said.

    Attributes:
        edges: (n, m + 1), in units of a ray's direction, from near to far.
        shares: (n, m + 1), the same edges from 0 to 1.
        levels: of each proposal, its edges from 0 to 1 and its weight before each of them, both (n, k + 1). The weights
            carry the proposal's gradient.
        engine: what computes losses; None for one that runs there.

    Example:
        >>> def even(starts, ends):
        ...     return torch.ones_like(starts)
        >>> samples = ts.render.sample_proposals([even], [8], 4, n_rays=2, near=1.0, far=3.0)
        >>> samples.t.shape, samples.steps.sum(1) <= 2
        (torch.Size([2, 4]), tensor([True, True]))
    """

    edges: Tensor
    shares: Tensor
    levels: tuple[tuple[Tensor, Tensor], ...]
    engine: str | None = None

    @property
    def t(self) -> Tensor:
        """(n, m), the middles of the intervals: with `steps` what `composite` takes in the dense form."""
        return (self.edges[:, 1:] + self.edges[:, :-1]) / 2

    @property
    def steps(self) -> Tensor:
        """(n, m), the lengths of the intervals."""
        return self.edges.diff()

    def loss(self, weights: Tensor) -> Tensor:
        """The `proposal_loss` of all levels, added up: what to train the proposals by.

        Args:
            weights: (n, m), those of these samples, as `composite` gives them. Not differentiated: gradients go to the
                proposals alone. What is left of a ray's light counts to the last interval, as in nerfacc.

        Returns:
            (n).

        Raises:
            ShapeError: there are not as many weights as samples.
        """
        expected = (self.edges.shape[0], self.edges.shape[1] - 1)
        if tuple(weights.shape) != expected:
            rows = [("expected", str(expected)), ("got", str(tuple(weights.shape)))]
            raise ShapeError(refusal("`weights` of ProposalSamples.loss do not fit.", rows, "One weight a sample."))
        cdfs = _enclose(weights.detach().cumsum(1)[:, :-1].clamp(max=1))
        losses = [proposal_loss(self.shares, cdfs, *level, engine=self.engine) for level in self.levels]
        return torch.stack(losses).sum(0) if losses else cdfs.new_zeros(len(cdfs))


def sample_proposals(
    proposals: Sequence[Callable[[Tensor, Tensor], Tensor]],
    proposal_samples: Sequence[int],
    n_samples: int,
    *,
    n_rays: int,
    near: float | Tensor,
    far: float | Tensor,
    spacing: str = "lindisp",
    jitter: Jitter = None,
    engine: str | None = None,
) -> ProposalSamples:
    """Sample rays where proposals say that there is something: mip-NeRF 360's hierarchy, nerfacc's `PropNetEstimator`.

    A ray is cut into intervals, even in s from 0 to 1. The first proposal gives each a density, `importance_sampling`
    makes new intervals of the weights that follow, for the next proposal, and so on; the last ones are returned.

        t = (1 - s) near + s far                    "uniform"
        1 / t = (1 - s) / near + s / far            "lindisp": as many samples before a distance as behind it

    Gradients reach the proposals through `ProposalSamples.loss`, if they are enabled here; call it under
    `torch.no_grad()` in steps that do not train proposals.

    Args:
        proposals: each takes starts and ends (n, k) of intervals along rays, in units of their directions, to
            densities (n, k), not negative.
        proposal_samples: how many intervals each proposal is asked for.
        n_samples: how many intervals there are in the end.
        n_rays: n.
        near: where rays begin: a number, or (n). Positive with "lindisp".
        far: where they end.
        spacing: "uniform" or "lindisp".
        jitter: None; True or a generator, to draw an offset for each ray and level; or offsets (n) in [0, 1).
        engine: "taichi" or "quadrants"; None for one that runs there.

    Returns:
        `ProposalSamples`, float32 on the CPU, or as `near` or `far` if one is a tensor.

    Raises:
        ArgumentError: an unknown spacing, or other numbers of proposals and of their samples.
        ShapeError: a proposal gives another shape.

    Example:
        >>> def wall(starts, ends):
        ...     return 50.0 * (starts > 2.0)
        >>> samples = ts.render.sample_proposals([wall], [64], 4, n_rays=1, near=1.0, far=3.0, spacing="uniform")
        >>> samples.t.min() > 1.9, samples.t.max() < 2.2
        (tensor(True), tensor(True))
    """
    _refuse_arguments(proposals, proposal_samples, spacing, near)
    like = next((end for end in (near, far) if isinstance(end, Tensor)), torch.empty(0))
    begins, ends = (_column(end, n_rays, like) for end in (near, far))
    shares = like.new_tensor([0.0, 1.0]).expand(n_rays, 2).contiguous()
    cdfs, levels = shares, []
    for proposal, count in zip(proposals, proposal_samples, strict=True):
        shares = importance_sampling(shares, cdfs, count, jitter=jitter, engine=engine).edges
        edges = _place_edges(shares, begins, ends, spacing)
        densities = proposal(edges[:, :-1], edges[:, 1:])
        if densities.shape != edges[:, 1:].shape:
            rows = [("expected", str((n_rays, count))), ("got", str(tuple(densities.shape)))]
            raise ShapeError(refusal("a proposal of sample_proposals returned a wrong shape", rows, "One an interval."))
        absorbed = (densities.to(edges) * edges.diff()).cumsum(1)
        cdfs = _enclose(-torch.expm1(-absorbed[:, :-1]))
        levels.append((shares, cdfs))
    shares = importance_sampling(shares, cdfs, n_samples, jitter=jitter, engine=engine).edges
    return ProposalSamples(_place_edges(shares, begins, ends, spacing), shares, tuple(levels), engine)


def _enclose(cdfs: Tensor) -> Tensor:
    """With a column of 0 before, and one of 1 behind: the last interval stands for all that follows too."""
    column = cdfs.new_zeros(len(cdfs), 1)
    return torch.cat([column, cdfs, column + 1], 1)


def _place_edges(shares: Tensor, begins: Tensor, ends: Tensor, spacing: str) -> Tensor:
    if spacing == "uniform":
        return torch.lerp(begins, ends, shares)
    return 1 / torch.lerp(1 / begins, 1 / ends, shares)


def _column(end: float | Tensor, n_rays: int, like: Tensor) -> Tensor:
    """(n, 1)."""
    if isinstance(end, Tensor):
        return end.to(like).reshape(-1, 1).expand(n_rays, 1)
    return like.new_full((n_rays, 1), end)


def _refuse_arguments(
    proposals: Sequence[object], proposal_samples: Sequence[int], spacing: str, near: float | Tensor
) -> None:
    if spacing not in _SPACINGS:
        rows = [("expected", ", ".join(map(repr, _SPACINGS))), ("got", repr(spacing))]
        raise ArgumentError(refusal("sample_proposals got an unknown `spacing`", rows, "Pass one of them."))
    if len(proposals) != len(proposal_samples):
        rows = [("proposals", str(len(proposals))), ("proposal_samples", str(len(proposal_samples)))]
        raise ArgumentError(refusal("sample_proposals needs a number of samples a proposal", rows, "Pass as many."))
    if spacing == "lindisp" and not isinstance(near, Tensor) and not near > 0:
        rows = [("expected", 'a positive number with spacing="lindisp"'), ("got", repr(near))]
        remedy = 'Begin farther away, or pass spacing="uniform".'
        raise ArgumentError(refusal("`near` is out of range in sample_proposals", rows, remedy))
