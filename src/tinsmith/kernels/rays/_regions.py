"""The cell of an occupancy grid that a sample is in, and how far along the ray its occupancy stays the same.

Coordinates are relative to the center of the box: a position is g = og + t dg, with og, dg the ray in units of the
finest cells. Level l has as many cells, of size 2^l; a position belongs to the finest level that contains it. A word
of `bits` has the cells of a 4 x 4 x 4 block: bit 16 x + 4 y + z.

An empty or full block is traversed in one step, and so is a cell: all samples before its far side have its occupancy.
That side is moved inward by `slack`, more than the rounding error of a position, so that no sample is assigned to the
wrong cell. The remaining samples are examined individually.
"""

from types import ModuleType
from typing import Any

BLOCK = 4
"""The number of cells along each side of a block, which shares a word."""


def build_region(lang: ModuleType, *, fp: str, skips: bool) -> tuple[Any, Any]:
    """Build the functions `enter` and `region` for an engine and the float type "f32" or "f64"."""
    real = getattr(lang, fp)
    huge = 1e30  # 1 / dg of a ray that is parallel to a face, and never gets there
    rounding = 2.0**-19 if fp == "f32" else 2.0**-48  # 16 times the distance of numbers about 1

    @lang.func
    def enter(
        origins: lang.template(),
        directions: lang.template(),
        aabb: lang.template(),
        bits: lang.template(),
        cells: lang.template(),
        ranges: lang.template(),
        i,
    ):
        """Return a ray in grid coordinates: og, dg, 1 / dg, its (first, last) t in the grid, sizes and slack, and if
        it hits.
        """
        og = lang.Vector([0.0, 0.0, 0.0], dt=real)
        dg = lang.Vector([0.0, 0.0, 0.0], dt=real)
        per = lang.Vector([huge, huge, huge], dt=real)
        size = lang.Vector([0.0, 0.0, 0.0, 0.0, 0.0, 0.0], dt=real)
        widest = lang.cast(1 << (bits.shape[0] - 1), real)
        first, last, moves, beside = ranges[i, 0], ranges[i, 1], 0, 0
        for axis in lang.static(range(3)):
            low, high = aabb[axis], aabb[axis + 3]
            dense = cells[axis] / (high - low)
            o = (origins[i, axis] - (low + high) * real(0.5)) * dense
            d = directions[i, axis] * dense
            size[axis] = real(0.5) * cells[axis]
            half = size[axis] * widest
            if d != real(0.0):
                a, b = (-half - o) / d, (half - o) / d
                first = lang.max(first, lang.min(a, b))
                last = lang.min(last, lang.max(a, b))
                per[axis] = lang.max(-real(huge), lang.min(real(huge), real(1.0) / d))
                moves = 1
            elif o < -half or o > half:
                beside = 1
            og[axis], dg[axis] = o, d
        for axis in lang.static(range(3)):
            farthest = lang.max(lang.abs(first), lang.abs(last)) * lang.abs(dg[axis])
            reach = lang.abs(og[axis]) + farthest + real(2.0) * size[axis] * widest
            size[axis + 3] = real(rounding) * reach
        hit = 0
        if moves == 1 and beside == 0 and first < last:
            hit = 1
        return og, dg, per, lang.Vector([first, last], dt=real), size, hit

    @lang.func
    def region(bits: lang.template(), og, dg, per, size, there, last):
        """Return 1 if the position at t = `there` is occupied, else 0; and the t up to which its occupancy is known."""
        g = og + there * dg
        level, large, small = 0, real(1.0), real(1.0)
        for _ in range(bits.shape[0] - 1):
            outside = 0
            for axis in lang.static(range(3)):
                if lang.abs(g[axis]) > size[axis] * large:
                    outside = 1
            if outside == 1:
                level += 1
                large *= real(2.0)
                small *= real(0.5)
        cell = lang.Vector([0, 0, 0], dt=lang.i32)
        for axis in lang.static(range(3)):
            top = lang.cast(real(2.0) * size[axis], lang.i32) - 1
            number = lang.cast(g[axis] * small + size[axis], lang.i32)  # what is below 0 by rounding becomes 0
            cell[axis] = lang.max(0, lang.min(number, top))
        word = bits[level, cell[0] >> 2, cell[1] >> 2, cell[2] >> 2]
        bit = (cell[0] & 3) * 16 + (cell[1] & 3) * 4 + (cell[2] & 3)
        occupied = lang.cast((word >> lang.cast(bit, lang.i64)) & lang.cast(1, lang.i64), lang.i32)
        limit = there
        if lang.static(skips):
            alike = 0
            if word == 0 or word == -1:
                alike = 1
            limit = far_side(og, dg, per, size, cell, alike, large, last)
            if level > 0:
                limit = lang.min(limit, outside_of_finer(og, dg, per, size, large, there, limit))
        return occupied, limit

    @lang.func
    def far_side(og, dg, per, size, cell, alike, large, last):
        """Return the t at which the ray leaves the block if all its cells are `alike`, else the cell."""
        limit = last
        for axis in lang.static(range(3)):
            ahead = lang.select(dg[axis] < real(0.0), 0, 1)
            number = lang.select(alike == 1, (cell[axis] & ~3) + 4 * ahead, cell[axis] + ahead)
            inwards = lang.select(dg[axis] < real(0.0), size[axis + 3], -size[axis + 3])
            side = (lang.min(lang.cast(number, real), real(2.0) * size[axis]) - size[axis]) * large + inwards
            limit = lang.min(limit, (side - og[axis]) * per[axis])
        return limit

    @lang.func
    def outside_of_finer(og, dg, per, size, large, there, otherwise):
        """Return the t up to which a position outside the finer levels' box stays outside; `otherwise` if forever."""
        first, last, started, beside = there, there, 0, 0
        for axis in lang.static(range(3)):
            half = real(0.5) * large * size[axis] + size[axis + 3]
            if dg[axis] != real(0.0):
                a, b = (-half - og[axis]) * per[axis], (half - og[axis]) * per[axis]
                low, high = lang.min(a, b), lang.max(a, b)
                if started == 0:
                    first, last, started = low, high, 1
                else:
                    first, last = lang.max(first, low), lang.min(last, high)
            elif og[axis] < -half or og[axis] > half:
                beside = 1
        limit = lang.max(there, first)
        if beside == 1 or first > last or last < there:
            limit = otherwise
        return limit

    return enter, region
