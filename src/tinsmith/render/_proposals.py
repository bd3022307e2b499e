"""Proposals: cheap fields that choose the samples of an expensive field along rays, and learn from its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._errors import ArgumentError, ShapeError, refusal
from .._integers import read_count
from ._course import Jitter
from ._resampling import importance_sampling, proposal_loss

_SPACINGS = ("uniform", "lindisp")


@dataclass(frozen=True)
class ProposalSamples:
    """Samples along rays, the same number on each, and the results of the proposals.

    Attributes:
        edges: (n, m + 1), edges of the intervals in units of a ray's direction, from near to far.
        shares: (n, m + 1), the same edges, mapped to 0 to 1.
        levels: for each proposal, its edges from 0 to 1 and its cumulative weight before each edge, both (n, k + 1).
            The weights carry the proposal's gradient.
        engine: the engine that computes losses; None for a running engine, else an installed one.

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
        """The midpoints of the intervals, (n, m), as `composite` takes them in the dense form with `steps`."""
        return (self.edges[:, 1:] + self.edges[:, :-1]) / 2

    @property
    def steps(self) -> Tensor:
        """The lengths of the intervals, (n, m)."""
        return self.edges.diff()

    def loss(self, weights: Tensor) -> Tensor:
        """Compute the loss that trains the proposals: the sum of `proposal_loss` over all levels.

        Args:
            weights: (n, m), the weights of these samples, from `composite`. Not differentiated: gradients go to the
                proposals only. The remaining transmittance of a ray is added to its last interval, as in nerfacc.

        Returns:
            (n).

        Raises:
            ShapeError: the numbers of weights and samples differ.
        """
        expected = (self.edges.shape[0], self.edges.shape[1] - 1)
        if tuple(weights.shape) != expected:
            rows = [("expected", str(expected)), ("got", str(tuple(weights.shape)))]
            remedy = "Pass one per sample."
            raise ShapeError(refusal("`weights` of ProposalSamples.loss have the wrong shape", rows, remedy))
        cdfs = _add_ends(weights.detach().cumsum(1)[:, :-1].clamp(max=1))
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
    """Sample rays hierarchically, guided by proposals: mip-NeRF 360, nerfacc's `PropNetEstimator`.

    A ray is divided into intervals that are equal in s, from 0 to 1. The first proposal gives each interval a density;
    `importance_sampling` makes new intervals from the resulting weights, for the next proposal, and so on. The last
    intervals are returned.

        t = (1 - s) near + s far                    "uniform"
        1 / t = (1 - s) / near + s / far            "lindisp": uniform in 1 / t

    Gradients reach the proposals through `ProposalSamples.loss`, if they are enabled during this call; use
    `torch.no_grad()` in steps that do not train proposals.

    Args:
        proposals: each maps starts and ends (n, k) of intervals along rays, in units of their directions, to densities
            (n, k), not negative.
        proposal_samples: the number of intervals of each proposal.
        n_samples: the number of intervals that are returned.
        n_rays: the number of rays, n.
        near: where rays begin: a number, or (n). Positive with "lindisp".
        far: where they end.
        spacing: "uniform" or "lindisp".
        jitter: None; True or a generator, to draw an offset for each ray and level; or offsets (n) in [0, 1).
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `ProposalSamples`, float32 on the CPU, or with dtype and device of `near` or `far` if one is a tensor.

    Raises:
        ArgumentError: an unknown spacing, `n_rays` is no count, or `proposals` and `proposal_samples` differ in length.
        ShapeError: a proposal returns another shape.

    Example:
        >>> def wall(starts, ends):
        ...     return 50.0 * (starts > 2.0)
        >>> samples = ts.render.sample_proposals([wall], [64], 4, n_rays=1, near=1.0, far=3.0, spacing="uniform")
        >>> samples.t.min() > 1.9, samples.t.max() < 2.2
        (tensor(True), tensor(True))
    """
    _refuse_arguments(proposals, proposal_samples, spacing, near)
    n_rays = read_count("n_rays", "`sample_proposals`", n_rays)
    like = next((end for end in (near, far) if isinstance(end, Tensor)), torch.empty(0))
    begins, ends = (_make_column(end, n_rays, like) for end in (near, far))
    shares = like.new_tensor([0.0, 1.0]).expand(n_rays, 2).contiguous()
    cdfs, levels = shares, []
    for proposal, count in zip(proposals, proposal_samples, strict=True):
        shares = importance_sampling(shares, cdfs, count, jitter=jitter, engine=engine).edges
        edges = _place_edges(shares, begins, ends, spacing)
        densities = proposal(edges[:, :-1], edges[:, 1:])
        if densities.shape != edges[:, 1:].shape:
            rows = [("expected", str((n_rays, count))), ("got", str(tuple(densities.shape)))]
            remedy = "Return one density per interval."
            raise ShapeError(refusal("a proposal of sample_proposals returned a wrong shape", rows, remedy))
        absorbed = (densities.to(edges) * edges.diff()).cumsum(1)
        cdfs = _add_ends(-torch.expm1(-absorbed[:, :-1]))
        levels.append((shares, cdfs))
    shares = importance_sampling(shares, cdfs, n_samples, jitter=jitter, engine=engine).edges
    return ProposalSamples(_place_edges(shares, begins, ends, spacing), shares, tuple(levels), engine)


def _add_ends(cdfs: Tensor) -> Tensor:
    """Return cumulative weights with a column of 0 prepended and one of 1 appended.

    The last interval thereby also gets the weight of everything behind it.
    """
    column = cdfs.new_zeros(len(cdfs), 1)
    return torch.cat([column, cdfs, column + 1], 1)


def _place_edges(shares: Tensor, begins: Tensor, ends: Tensor, spacing: str) -> Tensor:
    if spacing == "uniform":
        return torch.lerp(begins, ends, shares)
    return 1 / torch.lerp(1 / begins, 1 / ends, shares)


def _make_column(end: float | Tensor, n_rays: int, like: Tensor) -> Tensor:
    """Return near or far of each ray as a column, (n, 1), with the dtype and device of `like`."""
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
        remedy = "Pass one number for each proposal."
        raise ArgumentError(refusal("sample_proposals needs one number of samples per proposal", rows, remedy))
    if spacing == "lindisp" and not isinstance(near, Tensor) and not near > 0:
        rows = [("expected", 'a positive number with spacing="lindisp"'), ("got", repr(near))]
        remedy = 'Pass a `near` above 0, or spacing="uniform".'
        raise ArgumentError(refusal("`near` is out of range in sample_proposals", rows, remedy))
