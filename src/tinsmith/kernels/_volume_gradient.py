"""The handwritten gradient of direct volume rendering.

A ray is traversed backward from its last sample. The transmittance before a sample is that after it divided by the
fraction that the sample lets through, and the contributions behind are summed on the way. So nothing is stored per
sample, and no sum is subtracted from a total: the gradient of hidden samples is as small as it should be, not as small
as rounding errors (which an optimizer like Adam turns into steps). With the cotangents c, o and d of color, opacity
and depth:

    gain = c.color + o + d t                                           the gradient in a sample's weight
    (left after it) gain - (sum of weight gain of those behind it)      the gradient in its density times its length

The gradient in the volume and the table is a sum over rays. On a CPU each worker takes every w-th ray, with its own
copy of the table, and of the volume unless that is `shared`: plain additions, in the same order every time. On a GPU
each ray is a thread, and all add atomically, to one volume and a few tables.

Measured on 2 cores, 220,000 samples in a volume of 32^3, both passes, in milliseconds of CPU time on Taichi and on
Quadrants: 43 and 36, with the generated gradient 70 and 65, with one volume for all 45 and 42; shaded 140 and 112, 196
and 168, 161 and 120. Reading the same cells 56 times to shade a sample, where
32 reads would do, takes a third longer than code that is written out, and compiles in a third of the time.
"""

from types import ModuleType
from typing import Any

from ._shares import SHARE, build_only_first
from ._volume_samples import build_lighting, build_transfer, build_walk


def volume_gradient(
    lang: ModuleType,
    *,
    fp: str,
    shaded: bool,
    apart: bool,
    shared: bool,
    for_volume: bool,
    for_table: bool,
    for_rays: bool,
) -> Any:
    """Build the kernel of the gradient of `volume_render`.

    Its parameters are those of `volume_render`, and then, all of the type `fp`:

        c              [n, 3]        cotangents of color,
        o              [n]           of opacity
        d              [n]           and of depth
        last           [n]           transmittance before each ray's last sample,
        used           [n] int32     and the index of that sample plus 1
        volumes        [v, x, y, z]  zeros: copies to add to; one if `shared`
        tables         [w, k, 4]     zeros: copies to add to, one for each worker, or used in turns
        by_volume      [x, y, z]     the gradients
        by_table       [k, 4]
        by_origin      [n, 3]
        by_direction   [n, 3]

    Args:
        lang: the engine's module.
        fp: "f32" or "f64".
        shaded: whether surfaces are lit.
        apart: whether as many workers as there are tables share the rays, as suits a CPU; else each ray is a thread.
        shared: add to one volume from all rays at once, atomically.
        for_volume: whether to compute the gradient in the volume. Gradients not computed are left unchanged.
        for_table: whether to compute the gradient in the table.
        for_rays: whether to compute the gradient in origins and directions.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    only_first = build_only_first(lang)
    crossing, samples, place, look = build_walk(lang, fp=fp)
    row_of, entry = build_transfer(lang, fp=fp)
    lights, normal_of, _, _ = build_lighting(lang, fp=fp)
    lit_gradient = build_lighting_gradient(lang, fp=fp)
    spread = build_gradient_scatter(lang, fp=fp, shaded=shaded, shared=shared, for_volume=for_volume)
    onto_faces, onto_eye = build_end_gradients(lang, fp=fp)

    @lang.func
    def pull(
        volume: lang.template(),
        table: lang.template(),
        origins: lang.template(),
        directions: lang.template(),
        box: lang.template(),
        offsets: lang.template(),
        settings: lang.template(),
        c: lang.template(),
        o: lang.template(),
        d: lang.template(),
        last: lang.template(),
        used: lang.template(),
        volumes: lang.template(),
        tables: lang.template(),
        by_origin: lang.template(),
        by_direction: lang.template(),
        ray,
        worker,
    ):
        near, far, enters, leaves = crossing(origins, directions, box, ray)
        count, pace, length = samples(directions, settings, near, far, ray)
        light, half = lights(directions, settings, ray)
        incoming = lang.Vector([c[ray, 0], c[ray, 1], c[ray, 2]], dt=real)
        behind, by_length, by_near, by_far = real(0.0), real(0.0), real(0.0), real(0.0)
        to_origin = lang.Vector([0.0, 0.0, 0.0], dt=real)
        to_direction = lang.Vector([0.0, 0.0, 0.0], dt=real)
        by_light, by_half = lang.Vector([0.0, 0.0, 0.0], dt=real), lang.Vector([0.0, 0.0, 0.0], dt=real)
        after, before = real(0.0), last[ray]
        for back in range(used[ray]):
            along = lang.cast(used[ray] - 1 - back, real) + offsets[ray]
            t = near + along * pace
            cell, part, steep = place(volume, origins, directions, box, ray, t)
            value, _slope = look(volume, cell, part)
            row, share, rise = row_of(table, value)
            color, density = entry(table, row, share)
            keep = lang.exp(-density * length)
            if back > 0:
                before = after / keep
            else:  # the last sample may let nothing through, so no division by `keep`
                after = before * keep
            weight = before * (real(1.0) - keep)
            by_color = weight * incoming
            here = color
            by_steep = lang.Vector([0.0, 0.0, 0.0], dt=real)
            if lang.static(shaded):
                normal, soft = normal_of(volume, box, settings, cell, part)
                here, by_color, by_steep, to_light, to_half = lit_gradient(
                    color, by_color, settings, normal, soft, light, half
                )
                by_light += to_light
                by_half += to_half
                for axis in lang.static(range(3)):
                    by_steep[axis] *= lang.cast(volume.shape[axis], real) / (box[3 + axis] - box[axis])
            gain = incoming.dot(here) + o[ray] + d[ray] * t
            by_thickness = after * gain - behind
            behind += weight * gain
            by_density = by_thickness * length
            by_length += by_thickness * density
            after = before

            following = lang.min(row + 1, table.shape[0] - 1)
            by_value = by_density * (table[following, 3] - table[row, 3])
            for channel in lang.static(range(3)):
                by_value += by_color[channel] * (table[following, channel] - table[row, channel])
            by_value *= rise
            if lang.static(for_table):
                copy = worker % tables.shape[0]
                for channel in lang.static(range(4)):
                    by_entry = by_density
                    if lang.static(channel < 3):
                        by_entry = by_color[channel]
                    if lang.static(apart):
                        tables[copy, row, channel] = tables[copy, row, channel] + (real(1.0) - share) * by_entry
                        tables[copy, following, channel] = tables[copy, following, channel] + share * by_entry
                    else:
                        tables[copy, row, channel] += (real(1.0) - share) * by_entry
                        tables[copy, following, channel] += share * by_entry
            by_place = spread(volume, volumes, worker, cell, part, by_value, by_steep)
            if lang.static(for_rays):
                by_t = weight * d[ray]
                for axis in lang.static(range(3)):
                    by_position = by_place[axis] * steep[axis]
                    to_origin[axis] += by_position
                    to_direction[axis] += by_position * t
                    by_t += by_position * directions[ray, axis]
                through = along / lang.cast(count, real)
                by_near += by_t * (real(1.0) - through)
                by_far += by_t * through
        if lang.static(for_rays):
            if used[ray] > 0:
                to_direction += onto_eye(directions, settings, by_light, by_half, by_length * pace, ray)
                by_end = by_length * length / (far - near)
                to_enter = onto_faces(directions, enters, by_near - by_end, ray)
                to_leave = onto_faces(directions, leaves, by_far + by_end, ray)
                to_origin += to_enter + to_leave
                to_direction += to_enter * near + to_leave * far
            for axis in lang.static(range(3)):
                by_origin[ray, axis] = to_origin[axis]
                by_direction[ray, axis] = to_direction[axis]

    @lang.kernel
    def volume_gradient(
        volume: array,
        table: array,
        origins: array,
        directions: array,
        box: array,
        offsets: array,
        settings: array,
        c: array,
        o: array,
        d: array,
        last: array,
        used: array,
        volumes: array,
        tables: array,
        by_volume: array,
        by_table: array,
        by_origin: array,
        by_direction: array,
    ):
        if lang.static(apart):
            for place in range(tables.shape[0] * SHARE):
                worker = place // SHARE
                turns = (origins.shape[0] - worker + tables.shape[0] - 1) // tables.shape[0]
                for turn in range(only_first(place, turns)):
                    pull(
                        volume, table, origins, directions, box, offsets, settings, c, o, d, last, used,
                        volumes, tables, by_origin, by_direction, worker + turn * tables.shape[0], worker,
                    )  # fmt: skip
        else:
            for ray in range(origins.shape[0]):
                pull(
                    volume, table, origins, directions, box, offsets, settings, c, o, d, last, used,
                    volumes, tables, by_origin, by_direction, ray, ray,
                )  # fmt: skip
        if lang.static(for_volume):
            for i, j, k in lang.ndrange(volume.shape[0], volume.shape[1], volume.shape[2]):
                total = real(0.0)
                for copy in range(volumes.shape[0]):
                    total += volumes[copy, i, j, k]
                by_volume[i, j, k] = total
        if lang.static(for_table):
            for row, channel in lang.ndrange(table.shape[0], 4):
                total = real(0.0)
                for copy in range(tables.shape[0]):
                    total += tables[copy, row, channel]
                by_table[row, channel] = total

    return volume_gradient


def build_lighting_gradient(lang: ModuleType, *, fp: str) -> Any:
    """Build the function that differentiates the shading of a sample."""
    real = getattr(lang, fp)

    @lang.func
    def lit_gradient(color, by_seen, settings: lang.template(), normal, soft, light, half):
        """Light a sample, and reverse it: return the shaded color, and the gradients in the color, the volume's slope
        (per length), light and half, given `by_seen`, the gradient in the shaded color.
        """
        facing, mirroring = normal.dot(light), normal.dot(half)
        bright = settings[2] + settings[3] * lang.abs(facing)
        glance = lang.abs(mirroring)
        shine = settings[4] * lang.pow(glance, settings[5])
        seen = color * bright
        for channel in lang.static(range(3)):
            seen[channel] += shine
        by_facing = settings[3] * by_seen.dot(color) * sign(facing)
        by_shine = (by_seen[0] + by_seen[1] + by_seen[2]) * settings[4]
        by_mirroring = by_shine * settings[5] * lang.pow(glance, settings[5] - real(1.0)) * sign(mirroring)
        by_normal = by_facing * light + by_mirroring * half
        by_steep = (by_normal - normal * normal.dot(by_normal)) / soft
        return seen, by_seen * bright, by_steep, by_facing * normal, by_mirroring * normal

    @lang.func
    def sign(number):
        return lang.select(number > real(0.0), real(1.0), lang.select(number < real(0.0), real(-1.0), real(0.0)))

    return lit_gradient


def build_gradient_scatter(lang: ModuleType, *, fp: str, shaded: bool, shared: bool, for_volume: bool) -> Any:
    """Build the function that adds a sample's gradient to the volume."""
    real = getattr(lang, fp)
    _, _, _, look = build_walk(lang, fp=fp)
    _, _, _, shift = build_lighting(lang, fp=fp)
    looks = 7 if shaded else 1

    @lang.func
    def scatter_gradient(volume: lang.template(), volumes: lang.template(), worker, cell, part, by_value, by_steep):
        """Add a sample's gradient to the cells around it; return its gradient in its position, in cells.

        A shaded sample reads the volume seven times: one cell to either side along each axis, and at its position.
        The gradients there are `by_value` and half of `by_steep`, with either sign.
        """
        by_place = lang.Vector([0.0, 0.0, 0.0], dt=real)
        copy = worker % volumes.shape[0]
        for looked in range(looks):
            there, gain = cell, by_value
            if looked < 6 and lang.static(shaded):
                axis, sign = looked // 2, 2 * (looked % 2) - 1
                there = cell + shift(axis, sign)
                along = lang.select(axis == 0, by_steep[0], lang.select(axis == 1, by_steep[1], by_steep[2]))
                gain = real(0.5) * along * lang.cast(sign, real)
            if gain != real(0.0):
                _value, slope = look(volume, there, part)
                by_place += gain * slope
                if lang.static(for_volume):
                    add(volumes, copy, there, part, gain)
        return by_place

    @lang.func
    def add(volumes: lang.template(), copy, cell, part, gain):
        for corner in lang.static(range(8)):
            i = lang.max(0, lang.min(cell[0] + corner // 4, volumes.shape[1] - 1))
            j = lang.max(0, lang.min(cell[1] + corner // 2 % 2, volumes.shape[2] - 1))
            k = lang.max(0, lang.min(cell[2] + corner % 2, volumes.shape[3] - 1))
            share = gain
            for axis in lang.static(range(3)):
                if lang.static(corner >> (2 - axis) & 1):
                    share *= part[axis]
                else:
                    share *= real(1.0) - part[axis]
            if lang.static(shared):
                volumes[copy, i, j, k] += share
            else:
                volumes[copy, i, j, k] = volumes[copy, i, j, k] + share

    return scatter_gradient


def build_end_gradients(lang: ModuleType, *, fp: str) -> tuple[Any, Any]:
    """Build the functions that take gradients common to all of a ray's samples to the ray: `onto_faces` and
    `onto_eye`.
    """
    real = getattr(lang, fp)

    @lang.func
    def onto_faces(directions: lang.template(), face, by_t, ray):
        """Return the gradient in the ray's position at a face of the box, given the gradient in t there."""
        gradient = lang.Vector([0.0, 0.0, 0.0], dt=real)
        for axis in lang.static(range(3)):
            if face == axis:
                gradient[axis] = -by_t / directions[ray, axis]
        return gradient

    @lang.func
    def onto_eye(directions: lang.template(), settings: lang.template(), by_light, by_half, by_speed, ray):
        """Return the gradient in a ray's direction, given those in its length and in the light and half vectors."""
        towards = lang.Vector([directions[ray, 0], directions[ray, 1], directions[ray, 2]], dt=real)
        speed = lang.sqrt(towards.dot(towards))
        eye = -towards / speed
        light = lang.Vector([settings[7], settings[8], settings[9]], dt=real)
        is_at_eye = light[0] == real(0.0) and light[1] == real(0.0) and light[2] == real(0.0)
        if is_at_eye:
            light = eye
        both = light + eye
        size = lang.sqrt(both.dot(both))
        half = both / lang.max(size, real(1e-6))
        by_both = (by_half - half * half.dot(by_half)) / lang.max(size, real(1e-6))
        by_eye = by_both
        if is_at_eye:
            by_eye = by_light + real(2.0) * by_both
        return towards * (by_speed / speed) - (by_eye - eye * eye.dot(by_eye)) / speed

    return onto_faces, onto_eye
