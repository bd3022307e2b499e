"""Resampling of rays from a distribution: intervals, and the share of a ray's weight before each of their edges.

A ray's edges ascend, and `cdfs` has a number for each. The references are in `reference`.
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._packed import build_span

FAINTEST = 1e-7
"""Added to a weight that is divided by, so that it is not zero."""


class Resampling(NamedTuple):
    """The kernels. Of one float type: edges, cdfs [e]; of int32: rays [n, 2], start and count of a ray's edges.

    Attributes:
        search: edges, rays, values [v], value_rays [n, 2] -> left, right [v], int64: the edges around each value, -1
            if its ray has none. Values without a ray are left unchanged.
        sample: edges, cdfs, rays, offsets [n], new_rays [n, 2], new_edge_rays [n, 2] -> t [m], new_edges [f].
        proposal_loss: cdfs, rays, proposal_cdfs [p], left, right [e] -> loss [n], the last two edges of the proposal.
    """

    search: Any
    sample: Any
    proposal_loss: Any


def resampling(lang: ModuleType, *, fp: str) -> Resampling:
    """Build the kernels that resample rays by a distribution; `fp` is the type of the arrays, "f32" or "f64"."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    span = build_span(lang)

    @lang.func
    def first_above(numbers: lang.template(), first, top, x):
        """Return the first index from `first` to `top` - 1 whose number, in ascending order, is above x, or `top`."""
        low, high = first, top
        while low < high:
            middle = low + (high - low) // 2
            if numbers[middle] > x:
                high = middle
            else:
                low = middle + 1
        return low

    @lang.kernel
    def search(edges: array, rays: array, values: array, value_rays: array, left: array, right: array):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, edges.shape[0])
            begin, end = span(value_rays, ray, values.shape[0])
            for i in range(begin, end):
                left[i] = lang.cast(-1, lang.i64)
                right[i] = lang.cast(-1, lang.i64)
                if first < last:
                    above = first_above(edges, first, last - 1, values[i])
                    left[i] = lang.cast(lang.max(above - 1, first), lang.i64)
                    right[i] = lang.cast(above, lang.i64)

    @lang.kernel
    def sample(
        edges: array,
        cdfs: array,
        rays: array,
        offsets: array,
        new_rays: array,
        new_edge_rays: array,
        t: array,
        new_edges: array,
    ):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, edges.shape[0])
            begin, end = span(new_rays, ray, t.shape[0])
            if first < last and begin < end:
                top, count = last - 1, end - begin
                rise = (cdfs[top] - cdfs[first]) / lang.cast(count, real)
                for i in range(begin, end):
                    number = lang.cast(i - begin, real) + offsets[ray]
                    low, high = first, top
                    share = number / lang.cast(count, real)  # a ray without weight is sampled evenly
                    if rise > real(0.0):
                        u = cdfs[first] + number * rise
                        high = first_above(cdfs, first, top, u)
                        low = lang.max(high - 1, first)
                        share = lang.min(real(1.0), (u - cdfs[low]) / lang.max(cdfs[high] - cdfs[low], real(1e-30)))
                    t[i] = edges[low] + share * (edges[high] - edges[low])
                place = new_edge_rays[ray, 0]
                new_edges[place] = edges[first]
                new_edges[place + count] = edges[top]
                if count > 1:
                    half = real(0.5)
                    new_edges[place] = lang.max(edges[first], t[begin] - half * (t[begin + 1] - t[begin]))
                    new_edges[place + count] = lang.min(edges[top], t[end - 1] + half * (t[end - 1] - t[end - 2]))
                    for i in range(begin + 1, end):
                        new_edges[place + i - begin] = half * (t[i - 1] + t[i])

    @lang.kernel
    def proposal_loss(cdfs: array, rays: array, proposal_cdfs: array, left: array, right: array, loss: array):
        for ray in range(rays.shape[0]):
            first, last = span(rays, ray, cdfs.shape[0])
            total = real(0.0)
            for i in range(first, last - 1):
                before, behind = lang.cast(left[i], lang.i32), lang.cast(right[i + 1], lang.i32)
                if before >= 0:
                    weight = cdfs[i + 1] - cdfs[i]
                    excess = lang.max(real(0.0), weight - (proposal_cdfs[behind] - proposal_cdfs[before]))
                    total += excess * excess / (weight + real(FAINTEST))
            loss[ray] = total

    return Resampling(search, sample, proposal_loss)
