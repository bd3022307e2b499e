"""Traversal of several grids of cells, as nerfacc's `traverse_grids`: the intervals of rays in occupied cells.

A ray's intervals are contiguous from its near plane on. An interval that begins at t is max(step, cone t) long, or
extends to the end of its cell if the step is 0. It counts if its midpoint lies in an occupied cell. In an empty cell
its length stays the same as where the cell began, so that the cell is skipped in one step.

The positions at which a ray enters and leaves the grids are given, sorted. Between two of them it is in one grid: the
one that it entered last. Inside, it goes from cell to cell (Amanatides and Woo 1987).
"""

from types import ModuleType
from typing import Any, NamedTuple


class Traversal(NamedTuple):
    """The kernels of traversal. The arrays, of one float type unless another is named:

        origins, directions  [n, 3]
        mask       [n]           uint8, 0 for rays that are skipped
        cells      [g, x, y, z]  uint8, not 0 where a cell is occupied
        boxes      [g, 6]        lower corner, upper corner of each grid
        hits       [n, g]        uint8, which grids a ray meets
        crossings  [n, 2 g]      where it enters and leaves them, ascending
        order      [n, 2 g]      int32: g' where it enters grid g', g + g' where it leaves it
        near, far  [n]
        step, cone  numbers
        most       int, the maximum number of intervals per ray; 0 for no limit

    Attributes:
        count: -> counts [n] int32, the number of intervals of each ray; stops [n], where the next one would begin.
        fill: takes rays [n, 2] int32, start and count of its intervals, before the numbers -> starts [s], ends [s],
            ray_index [s] int32, joined [s] int32: 1 where an interval begins where the one before it ends.
    """

    count: Any
    fill: Any


def traversal(lang: ModuleType, *, fp: str) -> Traversal:
    """Build the kernels that count and write the intervals of rays in occupied cells, for an engine and
    a float type.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    longest, parallel = 1e10, 1e30
    inside = 1e-6  # a segment's first cell is looked up this far after its beginning

    @lang.func
    def length_at(t, step, cone):
        return lang.min(lang.max(t * cone, step), real(longest))

    @lang.func
    def skip(t, end, step, cone):
        """Return the start of the first interval, from t on, whose midpoint is not before `end`."""
        if step > real(0.0):
            length = length_at(t, step, cone)
            t += length * lang.max(real(0.0), lang.ceil((end - t) / length - real(0.5)))
            while t + real(0.5) * length < end:  # where it was rounded down
                t += length
        else:
            t = end
        return t

    @lang.func
    def segment_of(order: lang.template(), hits: lang.template(), i, k):
        """Return the grid that a ray is in after its k-th crossing, or -1."""
        grids = hits.shape[1]
        grid = order[i, k] % grids
        met = lang.cast(hits[i, grid], lang.i32)
        if order[i, k] >= grids:
            following = order[i, k + 1]
            grid = following % grids
            if following < grids or hits[i, grid] == 0:
                met = 0
        if met == 0:
            grid = -1
        return grid

    @lang.func
    def enter(
        origins: lang.template(),
        directions: lang.template(),
        cells: lang.template(),
        boxes: lang.template(),
        i,
        grid,
        t,
    ):
        """Return the cell at t, the step to the next cell, the t where its far sides are crossed, and its width, for
        each axis.
        """
        cell = lang.Vector([0, 0, 0], dt=lang.i32)
        stride = lang.Vector([0, 0, 0], dt=lang.i32)
        crossing = lang.Vector([parallel, parallel, parallel], dt=real)
        width = lang.Vector([0.0, 0.0, 0.0], dt=real)
        for axis in lang.static(range(3)):
            count = cells.shape[axis + 1]
            low = boxes[grid, axis]
            width[axis] = (boxes[grid, axis + 3] - low) / count
            o, d = origins[i, axis], directions[i, axis]
            at = lang.floor((o + d * (t + real(inside)) - low) / width[axis])
            cell[axis] = lang.cast(lang.min(lang.max(at, real(0.0)), lang.cast(count - 1, real)), lang.i32)
            if d > real(0.0):
                stride[axis] = 1
                crossing[axis] = (low + (cell[axis] + 1) * width[axis] - o) / d
            elif d < real(0.0):
                stride[axis] = -1
                crossing[axis] = (low + cell[axis] * width[axis] - o) / d
        return cell, stride, crossing, width

    @lang.func
    def walk(
        origins: lang.template(),
        directions: lang.template(),
        cells: lang.template(),
        boxes: lang.template(),
        hits: lang.template(),
        crossings: lang.template(),
        order: lang.template(),
        near: lang.template(),
        far: lang.template(),
        step,
        cone,
        most,
        starts: lang.template(),
        ends: lang.template(),
        ray_index: lang.template(),
        joined: lang.template(),
        i,
        place,
        writes: lang.template(),
    ):
        """Return the number of intervals of a ray, and the t where it stops. Write them from a place on if `writes`."""
        total, is_joined, t = 0, 0, near[i]
        for k in range(crossings.shape[1] - 1):
            grid = segment_of(order, hits, i, k)
            begin, end = lang.max(crossings[i, k], near[i]), lang.min(crossings[i, k + 1], far[i])
            if grid >= 0 and begin < end and total < most:
                if is_joined == 0:
                    t = skip(t, begin, step, cone)
                cell, stride, crossing, width = enter(origins, directions, cells, boxes, i, grid, begin)
                is_in = 1
                while is_in == 1 and total < most:
                    out = lang.min(end, lang.min(crossing[0], lang.min(crossing[1], crossing[2])))
                    if cells[grid, cell[0], cell[1], cell[2]] == 0:
                        t = skip(t, out, step, cone)
                        is_joined = 0
                    else:
                        goes_on = 1
                        while goes_on == 1 and total < most:
                            following = out
                            if step > real(0.0):
                                length = length_at(t, step, cone)
                                following = t + length
                                if t + real(0.5) * length >= out:
                                    goes_on = 0
                            if goes_on == 1:
                                if lang.static(writes):
                                    starts[place + total] = t
                                    ends[place + total] = following
                                    ray_index[place + total] = i
                                    joined[place + total] = is_joined
                                total += 1
                                is_joined = 1
                                t = following
                                if following >= out:
                                    goes_on = 0
                    if out >= end:
                        is_in = 0
                    else:
                        first = 2
                        if crossing[0] < crossing[1] and crossing[0] < crossing[2]:
                            first = 0
                        elif crossing[1] < crossing[2]:
                            first = 1
                        for axis in lang.static(range(3)):
                            if axis == first:
                                cell[axis] += stride[axis]
                                side = cell[axis] + lang.max(stride[axis], 0)
                                at = boxes[grid, axis] + side * width[axis]
                                crossing[axis] = (at - origins[i, axis]) / directions[i, axis]
                                if cell[axis] < 0 or cell[axis] >= cells.shape[axis + 1]:
                                    is_in = 0
        return total, t

    @lang.kernel
    def count(
        origins: array,
        directions: array,
        mask: array,
        cells: array,
        boxes: array,
        hits: array,
        crossings: array,
        order: array,
        near: array,
        far: array,
        step: real,
        cone: real,
        most: lang.i32,
        counts: array,
        stops: array,
    ):
        for i in range(origins.shape[0]):
            total, t = 0, near[i]
            if mask[i] != 0:
                total, t = walk(
                    origins,
                    directions,
                    cells,
                    boxes,
                    hits,
                    crossings,
                    order,
                    near,
                    far,
                    step,
                    cone,
                    most,
                    stops,
                    stops,
                    counts,
                    counts,
                    i,
                    0,
                    False,
                )
            counts[i] = total
            stops[i] = t

    @lang.kernel
    def fill(
        origins: array,
        directions: array,
        cells: array,
        boxes: array,
        hits: array,
        crossings: array,
        order: array,
        near: array,
        far: array,
        rays: array,
        step: real,
        cone: real,
        starts: array,
        ends: array,
        ray_index: array,
        joined: array,
    ):
        for i in range(origins.shape[0]):
            if rays[i, 1] > 0:
                total, t = walk(
                    origins,
                    directions,
                    cells,
                    boxes,
                    hits,
                    crossings,
                    order,
                    near,
                    far,
                    step,
                    cone,
                    rays[i, 1],
                    starts,
                    ends,
                    ray_index,
                    joined,
                    i,
                    rays[i, 0],
                    True,
                )
                for j in range(rays[i, 0] + total, rays[i, 0] + rays[i, 1]):  # if it was rounded otherwise here
                    starts[j] = t
                    ends[j] = t
                    ray_index[j] = i
                    joined[j] = 0

    return Traversal(count, fill)
