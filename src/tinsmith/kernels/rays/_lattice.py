"""The lattice of a ray: the positions at which samples can be, regardless of which cells are occupied.

From e[0], where the ray begins, with the ray's offset u in [0, 1):

    e[k + 1] = e[k] + d[k],   d[k] = min(max(step, cone e[k]), longest)        edges of intervals, and lengths
    t[k] = e[k] + u d[k]                                                       a sample in each

e[k] is computed from k alone: d is the step up to k = bend, grows by a factor from there, and is the longest from
k = flat on. So a sample is bitwise the same whatever was skipped before it.
"""

from types import ModuleType
from typing import Any


def build_lattice(lang: ModuleType, *, fp: str) -> tuple[Any, Any, Any]:
    """Build the functions `lattice`, `at` and `after` for an engine and the float type "f32" or "f64"."""
    real = getattr(lang, fp)
    endless = 2.0**24 if fp == "f32" else 2.0**30  # the number of samples up to which k is exact
    huge = 1e30  # a longest step above this means no limit
    rounding = 2.0**-20 if fp == "f32" else 2.0**-49  # of a logarithm and a power, with room to spare
    # a lattice is a vector of these
    start, bent, offset, pace, opening, grows, bend, density, doubt, flat, flat_edge, longest_pace = range(12)

    @lang.func
    def at(line, k):
        """Return the position of sample k along a ray, whose lattice is `line`, and the length of its interval."""
        edge, length = line[start] + k * line[pace], line[pace]
        beyond = k - line[bend]
        if beyond >= real(0.0):
            edge = line[bent] * lang.exp(beyond * line[grows])
            length = edge * line[opening]
        past = k - line[flat]
        if past >= real(0.0):
            edge, length = line[flat_edge] + past * line[longest_pace], line[longest_pace]
        return edge + line[offset] * length, length

    @lang.func
    def before(line, k, limit):
        """Return True if sample k of a ray lies before the position `limit` on the ray."""
        there, _ = at(line, k)
        return there < limit

    @lang.func
    def least(line, limit):
        """Return an estimate of the first k whose sample is not before `limit`: at most one too large,
        up to rounding.
        """
        number = lang.min((limit - line[start]) * line[density] - line[offset] + real(1.0), real(endless))
        if number > line[bend]:
            bent_sample = line[bent] * (real(1.0) + line[offset] * line[opening])
            number = line[bend]
            if limit > bent_sample:
                more = lang.log(limit / bent_sample) / line[grows] + real(1.0) - line[doubt]
                number += lang.max(real(0.0), lang.min(more, real(endless)))
        if number > line[flat]:
            number = line[flat]
            more = (limit - line[flat_edge]) / line[longest_pace] - line[offset] + real(1.0)
            number += lang.max(real(0.0), lang.min(more, real(endless)))
        return lang.cast(lang.max(real(0.0), lang.min(number, real(endless))), lang.i32)

    @lang.func
    def lattice(first, last, u, step, cone, growth, longest):
        """Return a ray's lattice, and the number of its samples before `last`."""
        turn, unsure = real(2.0 * endless), real(0.0)
        if cone > real(0.0):
            unsure = real(2.0**-7) + real(rounding) / growth  # of k: sooner one visit more than a sample too many
            turn = lang.max(real(0.0), lang.ceil((step / cone - first) / step))
        turned = first + turn * step
        level, highest = real(2.0 * endless), real(0.0)
        if cone > real(0.0) and longest < real(huge):
            level = turn + lang.max(real(0.0), lang.ceil(lang.log(longest / (cone * turned)) / growth))
            highest = turned * lang.exp((level - turn) * growth)
        often = real(1.0) / step
        line = lang.Vector(
            [first, turned, u, step, cone, growth, turn, often, unsure, level, highest, longest], dt=real
        )
        end = least(line, last)
        while end > 0 and not before(line, end - 1, last):  # once or twice; more often if a cone is next to none
            end -= 1
        while end < int(endless) and before(line, end, last):
            end += 1
        return line, end

    @lang.func
    def after(line, k, end, limit):
        """Return the number of the next sample to visit.

        It is the first one after `k` at or behind the position `limit`, up to rounding, and at most `end`.

        `slack` in `_regions` allows for the rounding.
        """
        return lang.max(k + 1, lang.min(least(line, limit), end))

    return lattice, at, after
