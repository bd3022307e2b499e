"""Marching: the samples of rays in the occupied cells of a grid, found in two passes (the twin: `reference.march`).

The letters. A ray's lattice begins at e[0], where it enters the grid, and does not depend on what is occupied:

    e[k + 1] = e[k] + d[k],   d[k] = max(step, cone e[k])        edges of intervals, and their lengths
    t[k] = e[k] + u d[k]                                         a sample in each, u the ray's offset in [0, 1)

e[k] is worked out from k alone (d is the step up to k = bend, and grows by a factor from there), so that a sample has
the same bits whatever was skipped before it.

Cells are counted from the middle of the box: a place is g = og + t dg, with og, dg the ray in units of the finest
cells. Level l has `cells` of size 2^l along each axis; a place belongs to the finest level that it lies in.
A word of `bits` has the cells of a block, 4 x 4 x 4: bit 16 x + 4 y + z. A block that is empty or full is passed
through in one go, and so is a cell: all samples before its far side share its fate. That side is drawn in by `slack`,
more than what rounding can move a place, so that no sample gets into the wrong cell. What is left over is looked at
by itself.

The second pass walks as the first did. Should the compiler round differently there and find another number of
samples, it stops at the number that the first found, or fills up with samples of no length at the ray's end.
"""

from types import ModuleType
from typing import Any, NamedTuple

BLOCK = 4
"""Cells along each side of a block, which shares a word."""


class March(NamedTuple):
    """The kernels of marching. The arrays, of one float type but where it is told:

        origins, directions  [n, 3]
        aabb     [6]           of level 0: lower corner, upper corner
        bits     [l, x, y, z]  int64, words of blocks; see the head of the file
        offsets  [n]           u
        cells    [3]           int32, `resolution`
        near, far, step, cone  numbers; growth: log(1 + cone)
        most     int, samples a ray at most

    Attributes:
        count: -> counts [n], firsts [n], int32: how many samples, and the first one's k.
        fill: takes firsts and rays [n, 2], int32, after cells -> ray_index [s] int32, t [s], steps [s].
    """

    count: Any
    fill: Any


def march(lang: ModuleType, *, fp: str, skips: bool = True) -> March:
    """Build the kernels of marching for an engine.

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        skips: False looks at each sample by itself: for tests.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    enter, lattice, at, after = lattices(lang, fp=fp)
    region = regions(lang, fp=fp, skips=skips)

    @lang.kernel
    def count(
        origins: array,
        directions: array,
        aabb: array,
        bits: array,
        offsets: array,
        cells: array,
        near: real,
        far: real,
        step: real,
        cone: real,
        growth: real,
        most: lang.i32,
        counts: array,
        firsts: array,
    ):
        for i in range(origins.shape[0]):
            og, dg, span, hit = enter(origins, directions, aabb, bits, cells, i, near, far)
            first, total = 0, 0
            if hit == 1:
                line, end = lattice(span[0], span[1], offsets[i], step, cone, growth)
                k = 0
                while k < end and total < most:
                    there, _ = at(line, k)
                    occupied, limit = region(bits, cells, og, dg, there, span[1])
                    ahead = after(line, k, end, limit)
                    if occupied == 1:
                        if total == 0:
                            first = k
                        total += ahead - k
                    k = ahead
            counts[i] = lang.min(total, most)
            firsts[i] = first

    @lang.kernel
    def fill(
        origins: array,
        directions: array,
        aabb: array,
        bits: array,
        offsets: array,
        cells: array,
        firsts: array,
        rays: array,
        near: real,
        far: real,
        step: real,
        cone: real,
        growth: real,
        ray_index: array,
        t: array,
        steps: array,
    ):
        for i in range(origins.shape[0]):
            place, stop = rays[i, 0], rays[i, 0] + rays[i, 1]
            if place < stop:
                og, dg, span, _ = enter(origins, directions, aabb, bits, cells, i, near, far)
                line, end = lattice(span[0], span[1], offsets[i], step, cone, growth)
                k = firsts[i]
                while k < end and place < stop:
                    there, length = at(line, k)
                    occupied, limit = region(bits, cells, og, dg, there, span[1])
                    ahead = after(line, k, end, limit)
                    if occupied == 1:
                        for j in range(k, lang.min(ahead, k + stop - place)):
                            there, length = at(line, j)
                            ray_index[place + j - k] = i
                            t[place + j - k] = there
                            steps[place + j - k] = length
                        place = lang.min(stop, place + ahead - k)
                    k = ahead
                for j in range(place, stop):
                    ray_index[j] = i
                    t[j] = span[1]
                    steps[j] = real(0.0)

    return March(count, fill)


def lattices(lang: ModuleType, *, fp: str) -> tuple[Any, Any, Any, Any]:
    """The functions of a ray and its lattice: `enter`, `lattice`, `at` and `after`."""
    real = getattr(lang, fp)
    endless = 2.0**24 if fp == "f32" else 2.0**30  # samples: up to there k is exact
    start, bent, offset, pace, opening, grows, bend = range(7)  # a lattice is a vector of these

    @lang.func
    def enter(
        origins: lang.template(),
        directions: lang.template(),
        aabb: lang.template(),
        bits: lang.template(),
        cells: lang.template(),
        i,
        near,
        far,
    ):
        """A ray in cells from the middle, the range of t in which it is in the grid, and whether it is at all."""
        og = lang.Vector([0.0, 0.0, 0.0], dt=real)
        dg = lang.Vector([0.0, 0.0, 0.0], dt=real)
        first, last, moves, beside = near, far, 0, 0
        for axis in lang.static(range(3)):
            low, high = aabb[axis], aabb[axis + 3]
            dense = cells[axis] / (high - low)
            o = (origins[i, axis] - (low + high) * real(0.5)) * dense
            d = directions[i, axis] * dense
            half = real(0.5) * lang.cast(cells[axis] << (bits.shape[0] - 1), real)
            if d != real(0.0):
                a, b = (-half - o) / d, (half - o) / d
                first = lang.max(first, lang.min(a, b))
                last = lang.min(last, lang.max(a, b))
                moves = 1
            elif o < -half or o > half:
                beside = 1
            og[axis], dg[axis] = o, d
        hit = 0
        if moves == 1 and beside == 0 and first < last:
            hit = 1
        return og, dg, lang.Vector([first, last], dt=real), hit

    @lang.func
    def at(line, k):
        """The place of the sample k, and the length of its interval."""
        edge, length = line[start] + k * line[pace], line[pace]
        beyond = k - line[bend]
        if beyond >= real(0.0):
            edge = line[bent] * lang.exp(beyond * line[grows])
            length = edge * line[opening]
        return edge + line[offset] * length, length

    @lang.func
    def before(line, k, limit):
        """Whether the sample k is before `limit`."""
        there, _ = at(line, k)
        return there < limit

    @lang.func
    def whole(number):
        """A number of samples, cut to what may be counted."""
        return lang.cast(lang.max(real(0.0), lang.min(number, real(endless))), lang.i32)

    @lang.func
    def least(line, limit):
        """About the first k whose sample is not before `limit`."""
        number = lang.min(lang.ceil((limit - line[start]) / line[pace] - line[offset]), real(endless))
        if number > line[bend]:
            bent_sample = line[bent] * (real(1.0) + line[offset] * line[opening])
            number = line[bend]
            if limit > bent_sample:
                number += lang.ceil(lang.log(limit / bent_sample) / line[grows])
        return whole(number)

    @lang.func
    def lattice(first, last, u, step, cone, growth):
        """A ray's lattice, and how many of its samples are before `last`."""
        turn = real(2.0 * endless)
        if cone > real(0.0):
            turn = lang.max(real(0.0), lang.ceil((step / cone - first) / step))
        line = lang.Vector([first, first + turn * step, u, step, cone, growth, turn], dt=real)
        end = least(line, last)
        for _ in lang.static(range(2)):
            if end > 0 and not before(line, end - 1, last):
                end -= 1
        for _ in lang.static(range(2)):
            if end < int(endless) and before(line, end, last):
                end += 1
        return line, end

    @lang.func
    def after(line, k, end, limit):
        """The first sample after k that is not before `limit`, up to `end`."""
        ahead = lang.max(k + 1, lang.min(least(line, limit), end))
        for _ in lang.static(range(2)):
            if ahead > k + 1 and not before(line, ahead - 1, limit):
                ahead -= 1
        return ahead

    return enter, lattice, at, after


def regions(lang: ModuleType, *, fp: str, skips: bool) -> Any:
    """Build the function `region`: whether a place is occupied, and up to where this holds along the ray."""
    real = getattr(lang, fp)
    rounding = 2.0**-20 if fp == "f32" else 2.0**-49  # eight times the distance of numbers about 1

    @lang.func
    def inner(og, dg, cells: lang.template(), size, slack, there):
        """Up to where a place that is not in the box of the finer levels stays outside."""
        first, last, beside = there, there, 0
        started = 0
        for axis in lang.static(range(3)):
            half = real(0.25) * cells[axis] * size + slack[axis]
            if dg[axis] != real(0.0):
                a, b = (-half - og[axis]) / dg[axis], (half - og[axis]) / dg[axis]
                low, high = lang.min(a, b), lang.max(a, b)
                if started == 0:
                    first, last, started = low, high, 1
                else:
                    first, last = lang.max(first, low), lang.min(last, high)
            elif og[axis] < -half or og[axis] > half:
                beside = 1
        limit = there
        free = 0
        if beside == 1 or started == 0 or first > last or last < there:
            free = 1
        elif first > there:
            limit = first
        return free, limit

    @lang.func
    def region(bits: lang.template(), cells: lang.template(), og, dg, there, last):
        g = og + there * dg
        level = 0
        for finer in range(bits.shape[0] - 1):
            for axis in lang.static(range(3)):
                if lang.abs(g[axis]) > real(0.5) * lang.cast(cells[axis] << finer, real):
                    level = finer + 1
        size = lang.cast(1 << level, real)
        cell = lang.Vector([0, 0, 0], dt=lang.i32)
        for axis in lang.static(range(3)):
            number = lang.cast(lang.floor(g[axis] / size + real(0.5) * cells[axis]), lang.i32)
            cell[axis] = lang.max(0, lang.min(number, cells[axis] - 1))
        word = bits[level, cell[0] >> 2, cell[1] >> 2, cell[2] >> 2]
        bit = (cell[0] & 3) * 16 + (cell[1] & 3) * 4 + (cell[2] & 3)
        occupied = lang.cast((word >> lang.cast(bit, lang.i64)) & lang.cast(1, lang.i64), lang.i32)
        limit = there
        if lang.static(skips):
            limit = far_side(bits, cells, og, dg, there, last, level, size, cell, word)
        return occupied, limit

    @lang.func
    def far_side(bits: lang.template(), cells: lang.template(), og, dg, there, last, level, size, cell, word):
        """Where the ray leaves the block, if all its cells are alike, or the cell."""
        span = 1
        if word == 0 or word == -1:
            span = 4
        slack = lang.Vector([0.0, 0.0, 0.0], dt=real)
        limit = last
        for axis in lang.static(range(3)):
            slack[axis] = real(rounding) * (
                lang.abs(og[axis]) + lang.abs(last * dg[axis]) + lang.cast(cells[axis] << (bits.shape[0] - 1), real)
            )
            base = lang.select(span == 4, cell[axis] & ~3, cell[axis])
            side = real(0.0)
            if dg[axis] > real(0.0):
                side = (lang.min(base + span, cells[axis]) - real(0.5) * cells[axis]) * size - slack[axis]
            else:
                side = (base - real(0.5) * cells[axis]) * size + slack[axis]
            if dg[axis] != real(0.0):
                limit = lang.min(limit, (side - og[axis]) / dg[axis])
        if level > 0:
            free, stays = inner(og, dg, cells, size, slack, there)
            if free == 0:
                limit = lang.min(limit, stays)
        return limit

    return region
