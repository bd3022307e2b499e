"""A sample of a ray through a volume: the functions that direct volume rendering and its gradient share.

Of the ray, `walking`; of the table, `transfer`; of shading, `lighting`. The model and
its letters stand with the reference, `reference.volume_render`, the layout of `settings` in `_volume`. Where a number
is clamped its derivative is 0 outside, and that of the inside on the border, as `torch.clamp` has it.
"""

from types import ModuleType
from typing import Any

MOST_SAMPLES = 65536.0
"""Of a ray, as the twin's."""
FARTHEST = 1e37
"""Rays that leave the box later than that, in t, go nowhere: their direction is 0."""


def walking(lang: ModuleType, *, fp: str) -> tuple[Any, Any, Any, Any]:
    """The functions of a ray in the box: `crossing`, its `samples`, the `place` of one, and a `look` at its value."""
    real = getattr(lang, fp)
    most, farthest = MOST_SAMPLES, FARTHEST

    @lang.func
    def crossing(origins: lang.template(), directions: lang.template(), box: lang.template(), ray):
        """From which t to which a ray is in the box, and the axes whose faces say so; -1: it starts inside, or misses.

        A ray that misses goes from 0 to 0.
        """
        near, far = real(0.0), real(2.0 * farthest)
        enters, leaves = -1, -1
        is_beside = False
        for axis in lang.static(range(3)):
            o, d = origins[ray, axis], directions[ray, axis]
            if d == real(0.0):
                if o < box[axis] or o > box[3 + axis]:
                    is_beside = True
            else:
                low, high = (box[axis] - o) / d, (box[3 + axis] - o) / d
                first, second = lang.min(low, high), lang.max(low, high)
                if first > near:
                    near, enters = first, axis
                if second < far:
                    far, leaves = second, axis
        if is_beside or far > real(farthest) or not far > near:
            near, far, enters, leaves = real(0.0), real(0.0), -1, -1
        return near, far, enters, leaves

    @lang.func
    def samples(directions: lang.template(), settings: lang.template(), near, far, ray):
        """How many samples a ray has, and how long one is: in t, and in the lengths of positions."""
        x, y, z = directions[ray, 0], directions[ray, 1], directions[ray, 2]
        speed = lang.sqrt(x * x + y * y + z * z)
        wanted = lang.ceil(lang.min((far - near) * speed / settings[0], real(most)))
        count = lang.cast(lang.max(wanted, real(1.0)), lang.i32)
        pace = (far - near) / lang.cast(count, real)
        return lang.select(far > near, count, 0), pace, pace * speed

    @lang.func
    def place(
        volume: lang.template(),
        origins: lang.template(),
        directions: lang.template(),
        box: lang.template(),
        ray,
        t,
    ):
        """The cell whose middle is before a ray's position at t, how far past it, and how that moves with position."""
        cell = lang.Vector([0, 0, 0], dt=lang.i32)
        part = lang.Vector([0.0, 0.0, 0.0], dt=real)
        steep = lang.Vector([0.0, 0.0, 0.0], dt=real)
        for axis in lang.static(range(3)):
            last = volume.shape[axis] - 1
            scale = lang.cast(volume.shape[axis], real) / (box[3 + axis] - box[axis])
            at = (origins[ray, axis] + t * directions[ray, axis] - box[axis]) * scale - real(0.5)
            steep[axis] = lang.select(at >= real(0.0) and at <= lang.cast(last, real), scale, real(0.0))
            at = lang.min(lang.max(at, real(0.0)), lang.cast(last, real))
            # Clamped as integers too, since a NaN passes the others.
            cell[axis] = lang.max(0, lang.min(lang.cast(lang.floor(at), lang.i32), last - 1))
            part[axis] = at - lang.cast(cell[axis], real)
        return cell, part, steep

    @lang.func
    def look(volume: lang.template(), cell, part):
        """The value between eight middles, and how it grows along each axis, a cell.

        A cell beyond the border is the last one before it.
        """
        last = lang.Vector([volume.shape[0] - 1, volume.shape[1] - 1, volume.shape[2] - 1])
        i, ii = lang.max(0, lang.min(cell[0], last[0])), lang.max(0, lang.min(cell[0] + 1, last[0]))
        j, jj = lang.max(0, lang.min(cell[1], last[1])), lang.max(0, lang.min(cell[1] + 1, last[1]))
        k, kk = lang.max(0, lang.min(cell[2], last[2])), lang.max(0, lang.min(cell[2] + 1, last[2]))
        c00, d00 = volume[i, j, k], volume[i, j, kk] - volume[i, j, k]
        c01, d01 = volume[i, jj, k], volume[i, jj, kk] - volume[i, jj, k]
        c10, d10 = volume[ii, j, k], volume[ii, j, kk] - volume[ii, j, k]
        c11, d11 = volume[ii, jj, k], volume[ii, jj, kk] - volume[ii, jj, k]
        z00, z01, z10, z11 = c00 + part[2] * d00, c01 + part[2] * d01, c10 + part[2] * d10, c11 + part[2] * d11
        y0, y1 = z00 + part[1] * (z01 - z00), z10 + part[1] * (z11 - z10)
        by_y = (z01 - z00) + part[0] * ((z11 - z10) - (z01 - z00))
        d0, d1 = d00 + part[1] * (d01 - d00), d10 + part[1] * (d11 - d10)
        slope = lang.Vector([y1 - y0, by_y, d0 + part[0] * (d1 - d0)], dt=real)
        return y0 + part[0] * (y1 - y0), slope

    return crossing, samples, place, look


def transfer(lang: ModuleType, *, fp: str) -> tuple[Any, Any]:
    """The functions of the table: `row_of` a value, and the `entry` there."""
    real = getattr(lang, fp)

    @lang.func
    def row_of(table: lang.template(), value):
        """The row before a value, how far past it, and how that moves with the value."""
        last = table.shape[0] - 1
        scale = lang.cast(last, real)
        at = lang.min(lang.max(value, real(0.0)), real(1.0)) * scale
        row = lang.max(0, lang.min(lang.cast(lang.floor(at), lang.i32), last - 1))
        steep = lang.select(value >= real(0.0) and value <= real(1.0), scale, real(0.0))
        return row, at - lang.cast(row, real), steep

    @lang.func
    def entry(table: lang.template(), row, share):
        """The colour and the density between two rows."""
        following = lang.min(row + 1, table.shape[0] - 1)
        colour = lang.Vector([0.0, 0.0, 0.0], dt=real)
        for channel in lang.static(range(3)):
            colour[channel] = table[row, channel] + share * (table[following, channel] - table[row, channel])
        density = table[row, 3] + share * (table[following, 3] - table[row, 3])
        return colour, density

    return row_of, entry


def lighting(lang: ModuleType, *, fp: str) -> tuple[Any, Any, Any, Any]:
    """The functions of shading: a ray's `lights`, the `normal_of` a sample, what is `lit` of it, a cell's `shift`."""
    real = getattr(lang, fp)
    _, _, _, look = walking(lang, fp=fp)

    @lang.func
    def shift(axis, sign):
        """One cell along an axis."""
        return lang.Vector(
            [lang.select(axis == 0, sign, 0), lang.select(axis == 1, sign, 0), lang.select(axis == 2, sign, 0)]
        )

    @lang.func
    def lights(directions: lang.template(), settings: lang.template(), ray):
        """Towards the light, and halfway between that and the eye, of length one each."""
        eye = lang.Vector([-directions[ray, 0], -directions[ray, 1], -directions[ray, 2]], dt=real)
        eye = eye / lang.max(lang.sqrt(eye.dot(eye)), real(1e-30))
        light = lang.Vector([settings[7], settings[8], settings[9]], dt=real)
        if light[0] == real(0.0) and light[1] == real(0.0) and light[2] == real(0.0):
            light = eye
        half = light + eye
        return light, half / lang.max(lang.sqrt(half.dot(half)), real(1e-6))

    @lang.func
    def normal_of(volume: lang.template(), box: lang.template(), settings: lang.template(), cell, part):
        """The direction in which values grow, shorter than one where they hardly do, and the soft length it had."""
        steep = lang.Vector([0.0, 0.0, 0.0], dt=real)
        for neighbour in range(6):
            axis, sign = neighbour // 2, 2 * (neighbour % 2) - 1
            value, _slope = look(volume, cell + shift(axis, sign), part)
            half_of_it = real(0.5) * value * lang.cast(sign, real)
            for dim in lang.static(range(3)):
                steep[dim] += lang.select(axis == dim, half_of_it, real(0.0))
        side = real(0.0)
        for axis in lang.static(range(3)):
            steep[axis] *= lang.cast(volume.shape[axis], real) / (box[3 + axis] - box[axis])
            side = lang.max(side, box[3 + axis] - box[axis])
        faint = settings[6] / side
        length = lang.sqrt(steep.dot(steep) + faint * faint)
        return steep / length, length

    @lang.func
    def lit(colour, settings: lang.template(), normal, light, half):
        facing, mirroring = lang.abs(normal.dot(light)), lang.abs(normal.dot(half))
        bright = settings[2] + settings[3] * facing
        shine = settings[4] * lang.pow(mirroring, settings[5])
        return lang.Vector(
            [colour[0] * bright + shine, colour[1] * bright + shine, colour[2] * bright + shine], dt=real
        )

    return lights, normal_of, lit, shift
