"""Resampling: new intervals where a ray has weight, and a loss for proposals that should bound the weight."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import kernels
from .._errors import ArgumentError, ShapeError, refusal
from .._integers import read_positive
from ..operation import Op
from ..tracing import assume
from ._course import Jitter, draw_offsets
from ._ops import get_op, register_maker
from ._packed import check_floats, check_rays, dense_rays
from ._rule import steady


class Neighbors(NamedTuple):
    """The indices of the edges on both sides of each value, int64.

    Attributes:
        left: shaped like the values.
        right: shaped like the values.

    Example:
        >>> edges = torch.tensor([[0.0, 1.0, 2.0]])
        >>> left, right = ts.render.searchsorted(edges, torch.tensor([[0.5, 1.5]]))
        >>> edges.gather(1, left), edges.gather(1, right)
        (tensor([[0., 1.]]), tensor([[1., 2.]]))
    """

    left: Tensor
    right: Tensor


class Intervals(NamedTuple):
    """Consecutive intervals along rays, and a sample in each.

    Attributes:
        edges: (n, m + 1), or packed (e): one more per ray than it has intervals.
        t: (n, m), or packed (s), the samples.
        edge_rays: (n, 2), int32, the start and the count of each ray's edges; None in the dense form.
        rays: (n, 2), int32, the start and the count of each ray's samples; None in the dense form.

    Example:
        >>> intervals = ts.render.importance_sampling(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]]), 4)
        >>> intervals.edges.diff()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    edges: Tensor
    t: Tensor
    edge_rays: Tensor | None = None
    rays: Tensor | None = None


def searchsorted(
    edges: Tensor,
    values: Tensor,
    rays: Tensor | None = None,
    value_rays: Tensor | None = None,
    *,
    engine: str | None = None,
) -> Neighbors:
    """Find, for each value, the two edges of its ray that enclose it: edges[left] <= value < edges[right].

    The same as nerfacc's function of this name. For a value before all edges of its ray, left and right are the first
    edge; for a value after all edges, or on the last one, they are the last two.

    Args:
        edges: (n, k), or packed (e); ascending along each ray.
        values: (n, m), or packed (v), in any order.
        rays: (n, 2), integers: the start and the count of each ray's edges. None for the dense form.
        value_rays: (n, 2), the same for the values; rows must not overlap. Both are passed, or neither.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `Neighbors(left, right)`: indices into a ray's row, or into the packed edges; -1 where a ray has no edges, and
        0 for values that belong to no ray.

    Raises:
        ArgumentError: an argument is not a tensor, or `rays` is passed without `value_rays`.
        ShapeError: tensors do not fit each other, or rays point outside of them (checked on the CPU only).
        DtypeError: tensors are not all float32 or all float64.

    Example:
        >>> ts.render.searchsorted(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.5, 1.0, 9.0]]))
        Neighbors(left=tensor([[0, 1, 1]]), right=tensor([[1, 2, 2]]))
    """
    with torch.no_grad():
        where, there = _check_pair("searchsorted", {"edges": edges, "values": values}, rays, value_rays)
        left, right = _search(edges, where, values, there, engine)
        if rays is not None:
            return Neighbors(left.view(values.shape), right.view(values.shape))
        starts = where[:, :1].long()
        return Neighbors(*(part.view(values.shape) - starts for part in (left, right)))


def importance_sampling(
    edges: Tensor,
    cdfs: Tensor,
    n_intervals: int | Tensor,
    rays: Tensor | None = None,
    *,
    jitter: Jitter = None,
    engine: str | None = None,
) -> Intervals:
    """Sample new intervals of rays by inverse transform sampling of a piecewise uniform distribution.

    The same as nerfacc's function of this name. With c(t) the cumulative weight, linear between edges, for m new
    intervals and the ray's offset u:

        c(t_i) = c_first + (i + u) (c_last - c_first) / m        samples, i = 0 to m - 1
        edges = midpoints of the samples; the first and the last mirrored at their sample, within the old edges

    A ray with weight 0 is sampled evenly. A single interval is the whole ray. Not differentiated: positions of samples
    are constants, as in mip-NeRF 360.

    Args:
        edges: (n, k), or packed (e); ascending along each ray.
        cdfs: shaped like edges, the cumulative weight before each edge: never decreasing; it may end below 1.
        n_intervals: the number of intervals of each ray; an integer, or integers (n), one for each ray. The latter
            returns packed intervals, and takes a round trip to the host on CUDA.
        rays: (n, 2), integers: the start and the count of each ray's edges. None for the dense form.
        jitter: None for the middle of each part of the weight; True or a generator, to draw an offset u for each ray;
            or offsets (n) in [0, 1). nerfacc calls this stratified.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `Intervals(edges, t, edge_rays, rays)`, dense if `n_intervals` is a number, packed otherwise. Zeros for a ray
        without edges.

    Raises:
        ArgumentError: an argument is not a tensor, or `n_intervals` is below 1.
        ShapeError: tensors do not fit each other, or rays point outside of them (checked on the CPU only).
        DtypeError: tensors are not all float32 or all float64.

    Example:
        >>> edges, cdfs = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.0, 0.0, 1.0]])
        >>> ts.render.importance_sampling(edges, cdfs, 2)[:2]
        (tensor([[1.0000, 1.5000, 2.0000]]), tensor([[1.2500, 1.7500]]))
    """
    where = _check_rays("importance_sampling", {"edges": edges, "cdfs": cdfs}, rays)
    n, offsets = len(where), draw_offsets(jitter, (len(where),), edges)
    sample: Op = get_op("resampling", engine, edges)[1]
    given = (edges.detach().reshape(-1), cdfs.detach().reshape(-1), where, offsets)
    if isinstance(n_intervals, Tensor) and n_intervals.ndim:
        counts = _check_counts(n_intervals, n)
        samples, ends = _place_runs(counts), _place_runs((counts + 1) * (counts > 0))
        t, new_edges = sample(*given, samples, ends, m=_count_rows(samples), f=_count_rows(ends))
        return Intervals(new_edges, t, ends, samples)
    m = read_positive("n_intervals", "`importance_sampling`", n_intervals, "Pass 1 or more, or a tensor (n).")
    samples, ends = (dense_rays(n, size, edges.device) for size in (m, m + 1))
    t, new_edges = sample(*given, samples, ends, m=n * m, f=n * (m + 1))
    return Intervals(new_edges.view(n, m + 1), t.view(n, m))


def proposal_loss(
    edges: Tensor,
    cdfs: Tensor,
    proposal_edges: Tensor,
    proposal_cdfs: Tensor,
    rays: Tensor | None = None,
    proposal_rays: Tensor | None = None,
    *,
    engine: str | None = None,
) -> Tensor:
    """Compute a loss on the weights of intervals that exceed the bound of a proposal.

    Barron et al. 2022 (mip-NeRF 360), equations 12 and 13:

        weight_i = cdf_(i + 1) - cdf_i
        bound_i = sum of the proposal's weights over its intervals that overlap interval i
        loss = sum over i of max(0, weight_i - bound_i)^2 / (weight_i + 1e-7)

    Minimizing it increases a proposal where there is weight, and does not decrease it elsewhere. The paper stops the
    gradient at the weights: pass `cdfs.detach()`. nerfacc takes the mean over intervals instead of the sum.

    Args:
        edges: (n, k), or packed (e), ascending along each ray, in the unit of the proposal's edges.
        cdfs: shaped like edges, the cumulative weight before each edge. Differentiable, twice.
        proposal_edges: (n, j), or packed. They cover the same part of the ray.
        proposal_cdfs: shaped like the proposal's edges. Differentiable, twice.
        rays: (n, 2), integers: the start and the count of each ray's edges; rows must not overlap. None for the
            dense form.
        proposal_rays: (n, 2), the same for the proposal. Both are passed, or neither.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        (n), 0 for a ray without intervals. Which intervals overlap is not differentiated.

    Raises:
        ArgumentError: an argument is not a tensor, or `rays` is passed without `proposal_rays`.
        ShapeError: tensors do not fit each other, or rays point outside of them (checked on the CPU only).
        DtypeError: tensors are not all float32 or all float64.

    Example:
        >>> edges, cdfs = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.0, 1.0, 1.0]])
        >>> ts.render.proposal_loss(edges, cdfs, torch.tensor([[0.0, 0.5, 2.0]]), torch.tensor([[0.0, 0.25, 0.5]]))
        tensor([0.2500])
    """
    function = "proposal_loss"
    given = {"edges": edges, "proposal_edges": proposal_edges}
    where, there = _check_pair(function, given, rays, proposal_rays, ("rays", "proposal_rays"))
    _refuse_other_shapes(function, {"edges": edges, "cdfs": cdfs})
    _refuse_other_shapes(function, {"proposal_edges": proposal_edges, "proposal_cdfs": proposal_cdfs})
    with torch.no_grad():
        left, right = _search(proposal_edges, there, edges, where, engine)
    op: Op = get_op("resampling", engine, cdfs)[2]
    return op(cdfs.reshape(-1), where, proposal_cdfs.reshape(-1), left, right)


def _search(edges: Tensor, rays: Tensor, values: Tensor, value_rays: Tensor, engine: str | None) -> Any:
    search: Op = get_op("resampling", engine, edges)[0]
    return search(edges.detach().reshape(-1), rays, values.detach().reshape(-1), value_rays)


def _check_counts(n_intervals: Tensor, n_rays: int) -> Tensor:
    """Check the numbers of intervals of the rays, and convert them to int32, (n).

    Raises:
        ShapeError: they are not one integer per ray.
    """
    if tuple(n_intervals.shape) != (n_rays,) or n_intervals.is_floating_point():
        given = f"{tuple(n_intervals.shape)}, {n_intervals.dtype}"
        rows = [("expected", f"a number, or integers ({n_rays},)"), ("got", given)]
        words = "`n_intervals` of `importance_sampling` must be one integer, or one for each ray"
        raise ShapeError(refusal(words, rows, "Pass one per ray."))
    return n_intervals.to(torch.int32).clamp(min=0)


def _place_runs(counts: Tensor) -> Tensor:
    """Return start and count of consecutive runs with these counts: (n, 2), int32."""
    return torch.stack([counts.cumsum(0, dtype=torch.int32) - counts, counts], 1).to(torch.int32)


def _count_rows(rays: Tensor) -> int:
    """Return the number of rows of a packed tensor with these consecutive runs (n, 2)."""
    if not len(rays):
        return 0
    size = int(rays[-1].sum())
    assume(size >= 0)
    return size


def _check_pair(
    function: str,
    given: dict[str, Tensor],
    rays: Tensor | None,
    others: Tensor | None,
    names: tuple[str, str] = ("rays", "value_rays"),
) -> tuple[Tensor, Tensor]:
    """Check two tensors of the same rays, both dense or both packed. Return the starts and counts of each one's rays.

    Args:
        function: the name of the caller, for messages.
        given: the two tensors by name.
        rays: starts and counts of the first tensor's rays; None for the dense form.
        others: starts and counts of the second tensor's rays; None for the dense form.
        names: the names of `rays` and `others`, for messages.

    Raises:
        ArgumentError, ShapeError, DtypeError: they do not fit each other.
    """
    check_floats(function, given)
    if (rays is None) != (others is None):
        rows = [(name, "None" if one is None else "a tensor") for name, one in zip(names, (rays, others), strict=True)]
        raise ArgumentError(refusal(f"`{function}` takes dense or packed tensors", rows, "Pass both, or neither."))
    (first, tensor), (second, other) = given.items()
    where, there = _check_rays(function, {first: tensor}, rays), _check_rays(function, {second: other}, others)
    if len(where) != len(there):
        rows = [(first, f"{len(where)} rays"), (second, f"{len(there)} rays")]
        remedy = "Pass both for the same rays."
        raise ShapeError(refusal(f"The arguments of `{function}` do not fit each other", rows, remedy))
    return where, there


def _check_rays(function: str, given: dict[str, Tensor], rays: Tensor | None) -> Tensor:
    """Check tensors of equal shape, dense (n, k) or packed (e). Return starts and counts of their rays, (n, 2) int32.

    Raises:
        ArgumentError, ShapeError, DtypeError: they do not fit each other, or `rays`.
    """
    check_floats(function, given)
    _refuse_other_shapes(function, given)
    name, tensor = next(iter(given.items()))
    axes, ndim = ("[n, k]", 2) if rays is None else ("[e]", 1)
    if tensor.ndim != ndim:
        rows = [(name, str(tuple(tensor.shape)), f"should be {axes}")]
        remedy = "Pass packed numbers with their `rays`, or dense ones, one row per ray, without."
        raise ShapeError(refusal(f"`{name}` of `{function}` has the wrong shape", rows, remedy))
    if rays is None:
        return dense_rays(tensor.shape[0], tensor.shape[1], tensor.device)
    return check_rays(function, rays, len(tensor))


def _refuse_other_shapes(function: str, given: dict[str, Tensor]) -> None:
    check_floats(function, given)
    if len({tuple(tensor.shape) for tensor in given.values()}) > 1:
        rows = [(name, str(tuple(tensor.shape))) for name, tensor in given.items()]
        remedy = "Pass one number per edge."
        raise ShapeError(refusal(f"The arguments of `{function}` do not fit each other", rows, remedy))


@register_maker("resampling")
def _make_ops(lang: Any, fp: str) -> tuple[Op, Op, Op]:
    built = kernels.resampling(lang, fp=fp)
    rays, new = "rays[n, 2]: i32", "segments new_rays[n, 2]: i32, segments new_edge_rays[n, 2]: i32"
    search = f"edges[e], {rays}, values[v], segments value_rays[n, 2]: i32 -> left[v]: i64, right[v]: i64"
    sample = f"edges[e], cdfs[e], {rays}, offsets[n], {new} -> t[m], new_edges[f]"
    loss = f"cdfs[e], segments {rays}, proposal_cdfs[p], left[e]: i64, right[e]: i64 -> loss[n]"
    return (
        steady(search, built.search, name="searchsorted"),
        steady(sample, built.sample, name="importance_sampling"),
        steady(loss, built.proposal_loss, adjoint="source", name="proposal_loss"),
    )
