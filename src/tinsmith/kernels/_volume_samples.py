"""Functions of a sample of a ray through a volume, which direct volume rendering and its gradient share.

`build_walk` makes those of the ray, `build_transfer` those of the table, `build_lighting` those of shading. The model
and its symbols are defined in `reference.volume_render`, the layout of `settings` in `_volume`. A clamped number has
derivative 0 outside the range and 1 on its border, as with `torch.clamp`.
"""

from types import ModuleType
from typing import Any

MOST_SAMPLES = 65536.0
"""The maximum number of samples of a ray, the same as the reference's."""
FARTHEST = 1e37
"""Rays that leave the box at a larger t are treated as if they missed it: their direction is 0."""


def build_walk(lang: ModuleType, *, fp: str) -> tuple[Any, Any, Any, Any]:
    """Build the functions of a ray in the box: `crossing`, `samples` (their count), `place` (of one) and `look` (its
    value).
    """
    real = getattr(lang, fp)
    most, farthest = MOST_SAMPLES, FARTHEST

    @lang.func
    def crossing(origins: lang.template(), directions: lang.template(), box: lang.template(), ray):
        """Return the t at which a ray enters and leaves the box, and the axes of the faces crossed there.

        An axis is -1 if the ray starts inside. A ray that misses gets 0, 0, -1, -1.
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
        """Return the number of samples of a ray, and the spacing of two: in t, and in units of positions."""
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
        """Return the cell with its center before the ray's position at t, the offset from it, and its derivative.

        The derivative is that of the offset in the position, along each axis.
        """
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
        """Return the trilinearly interpolated value between eight cell centers, and its derivative along each axis,
        per cell.

        Cells are clamped to the volume.
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


def build_transfer(lang: ModuleType, *, fp: str) -> tuple[Any, Any]:
    """Build the functions of the transfer table: `row_of` (the row of a value) and `entry` (the interpolated row)."""
    real = getattr(lang, fp)

    @lang.func
    def row_of(table: lang.template(), value):
        """Return the transfer table's row before a value in [0, 1], the offset from it, and the offset's derivative."""
        last = table.shape[0] - 1
        scale = lang.cast(last, real)
        at = lang.min(lang.max(value, real(0.0)), real(1.0)) * scale
        row = lang.max(0, lang.min(lang.cast(lang.floor(at), lang.i32), last - 1))
        steep = lang.select(value >= real(0.0) and value <= real(1.0), scale, real(0.0))
        return row, at - lang.cast(row, real), steep

    @lang.func
    def entry(table: lang.template(), row, share):
        """Return the color and the density interpolated between two rows."""
        following = lang.min(row + 1, table.shape[0] - 1)
        color = lang.Vector([0.0, 0.0, 0.0], dt=real)
        for channel in lang.static(range(3)):
            color[channel] = table[row, channel] + share * (table[following, channel] - table[row, channel])
        density = table[row, 3] + share * (table[following, 3] - table[row, 3])
        return color, density

    return row_of, entry


def build_lighting(lang: ModuleType, *, fp: str) -> tuple[Any, Any, Any, Any]:
    """Build the functions of shading: `lights` (of a ray), `normal_of` (a sample), `lit` (its color) and `shift` (of a
    cell).
    """
    real = getattr(lang, fp)
    _, _, _, look = build_walk(lang, fp=fp)

    @lang.func
    def shift(axis, sign):
        """Return the offset of one cell along an axis."""
        return lang.Vector(
            [lang.select(axis == 0, sign, 0), lang.select(axis == 1, sign, 0), lang.select(axis == 2, sign, 0)]
        )

    @lang.func
    def lights(directions: lang.template(), settings: lang.template(), ray):
        """Return the unit vectors toward the light, and halfway between light and eye."""
        eye = lang.Vector([-directions[ray, 0], -directions[ray, 1], -directions[ray, 2]], dt=real)
        eye = eye / lang.max(lang.sqrt(eye.dot(eye)), real(1e-30))
        light = lang.Vector([settings[7], settings[8], settings[9]], dt=real)
        if light[0] == real(0.0) and light[1] == real(0.0) and light[2] == real(0.0):
            light = eye
        half = light + eye
        return light, half / lang.max(lang.sqrt(half.dot(half)), real(1e-6))

    @lang.func
    def normal_of(volume: lang.template(), box: lang.template(), settings: lang.template(), cell, part):
        """Return the normalized gradient of the volume, shorter than one where the gradient is faint, and the divisor
        used.
        """
        steep = lang.Vector([0.0, 0.0, 0.0], dt=real)
        for neighbor in range(6):
            axis, sign = neighbor // 2, 2 * (neighbor % 2) - 1
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
    def lit(color, settings: lang.template(), normal, light, half):
        facing, mirroring = lang.abs(normal.dot(light)), lang.abs(normal.dot(half))
        bright = settings[2] + settings[3] * facing
        shine = settings[4] * lang.pow(mirroring, settings[5])
        return lang.Vector([color[0] * bright + shine, color[1] * bright + shine, color[2] * bright + shine], dt=real)

    return lights, normal_of, lit, shift
