"""Marching: the samples of rays in the occupied cells of a grid, in two passes (the reference: `reference.march`).

The first pass counts each ray's samples, the second writes them. `_lattice` computes where a ray's samples can be,
`_regions` which of them are in occupied cells. These come in runs, so the first pass stores the first few runs; the
second needs to look at cells again only if a ray has more.

If the second pass finds another number of samples because its compiled code rounds differently, it stops at the first
pass's number, or fills up with samples of length zero at the ray's end.
"""

from types import ModuleType
from typing import Any, NamedTuple

from ._lattice import build_lattice
from ._regions import build_region

RUNS = 8
"""The number of runs of a ray that the first pass stores for the second."""


class March(NamedTuple):
    """The kernels of marching. The arrays, of one float type unless another is named:

        origins, directions  [n, 3]
        aabb     [6]           of level 0: lower corner, upper corner
        bits     [l, x, y, z]  int64, words of blocks; see `_regions`
        offsets  [n]           the position of a ray's samples in their intervals, in [0, 1)
        cells    [3]           int32, of each level along the axes
        ranges   [n, 2]        near, far: the part of each ray that is marched
        begin    [n]           int32, the first lattice index to visit, if it `resumes`; else empty
        step, cone, longest    numbers; growth: log(1 + cone)
        most     int, the maximum number of samples per ray

    Attributes:
        count: -> counts [n], runs [n, RUNS, 2], end [n], int32: the number of samples; the first runs, each with the
            lattice index of its first sample and the one after its last; and, if it `resumes`, the index from which to
            continue after `most` samples, else `end` may be empty.
        fill: takes runs and rays [n, 2], int32, for `begin`, and no `most` -> ray_index [s] int32, t [s], steps [s].
    """

    count: Any
    fill: Any


def march(lang: ModuleType, *, fp: str, skips: bool = True, resumes: bool = False) -> March:
    """Build the kernels that count and write the samples of rays in occupied cells of a grid.

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        skips: False visits each sample individually, for tests.
        resumes: whether each ray begins at its own lattice index, and returns where it ended.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    lattice, at, after = build_lattice(lang, fp=fp)
    enter, region = build_region(lang, fp=fp, skips=skips)

    @lang.kernel
    def count(
        origins: array,
        directions: array,
        aabb: array,
        bits: array,
        offsets: array,
        cells: array,
        ranges: array,
        begin: array,
        step: real,
        cone: real,
        growth: real,
        longest: real,
        most: lang.i32,
        counts: array,
        runs: array,
        end: array,
    ):
        for i in range(origins.shape[0]):
            og, dg, per, span, size, hit = enter(origins, directions, aabb, bits, cells, ranges, i)
            total, run, k = 0, 0, 0
            if lang.static(resumes):
                k = begin[i]
            first, close = k, k
            if hit == 1:
                line, stop = lattice(span[0], span[1], offsets[i], step, cone, growth, longest)
                while k < stop and total < most:
                    there, _ = at(line, k)
                    occupied, limit = region(bits, og, dg, per, size, there, span[1])
                    ahead = after(line, k, stop, limit)
                    if occupied == 1:
                        if k != close:  # the run before this one has ended
                            if run < RUNS and first < close:
                                runs[i, run, 0] = first
                                runs[i, run, 1] = close
                                run += 1
                            first = k
                        close = ahead
                        total += ahead - k
                    k = ahead
            for rest in range(run, RUNS):
                runs[i, rest, 0] = first
                runs[i, rest, 1] = close
                first = close
            counts[i] = lang.min(total, most)
            if lang.static(resumes):
                end[i] = close - lang.max(total - most, 0)

    @lang.func
    def write(ray_index: lang.template(), t: lang.template(), steps: lang.template(), line, i, k, place, stop):
        """Write the samples from index k on, to the places from one up to another."""
        for j in range(place, stop):
            there, length = at(line, k + j - place)
            ray_index[j] = i
            t[j] = there
            steps[j] = length

    @lang.kernel
    def fill(
        origins: array,
        directions: array,
        aabb: array,
        bits: array,
        offsets: array,
        cells: array,
        ranges: array,
        runs: array,
        rays: array,
        step: real,
        cone: real,
        growth: real,
        longest: real,
        ray_index: array,
        t: array,
        steps: array,
    ):
        for i in range(origins.shape[0]):
            place, stop = rays[i, 0], rays[i, 0] + rays[i, 1]
            if place < stop:
                og, dg, per, span, size, _hit = enter(origins, directions, aabb, bits, cells, ranges, i)
                line, last = lattice(span[0], span[1], offsets[i], step, cone, growth, longest)
                for run in range(RUNS):
                    filled = lang.min(stop, place + runs[i, run, 1] - runs[i, run, 0])
                    write(ray_index, t, steps, line, i, runs[i, run, 0], place, filled)
                    place = filled
                k = runs[i, RUNS - 1, 1]
                while k < last and place < stop:
                    there, _ = at(line, k)
                    occupied, limit = region(bits, og, dg, per, size, there, span[1])
                    ahead = after(line, k, last, limit)
                    if occupied == 1:
                        filled = lang.min(stop, place + ahead - k)
                        write(ray_index, t, steps, line, i, k, place, filled)
                        place = filled
                    k = ahead
                for j in range(place, stop):
                    ray_index[j] = i
                    t[j] = span[1]
                    steps[j] = real(0.0)

    return March(count, fill)
