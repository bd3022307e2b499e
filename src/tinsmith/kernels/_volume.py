"""The kernel of direct volume rendering along rays, and constants that it shares with its gradient.

The model and its symbols are defined in `reference.volume_render`. Here each ray is one iteration of a parallel
loop. It visits its samples in order and tracks the remaining transmittance, `left`:

    left = 1;  for each sample:  keep = exp(-density length),  weight = left (1 - keep),  left = left keep

A ray ends where `left` is below the threshold, or below FAINTEST, where nothing is visible and the gradient could
not divide by it. Only visible surfaces are shaded.

`settings` holds the numbers of a call, of the type of the arrays:

    step | threshold | ambient | diffuse | specular | shininess | softness | light x, y, z (0, 0, 0: at the eye)
"""

from types import ModuleType
from typing import Any

from ._volume_samples import build_lighting, build_transfer, build_walk

FAINTEST = 1e-30
"""The transmittance at which a ray ends, whatever its threshold."""


def volume_render(lang: ModuleType, *, fp: str, shaded: bool) -> Any:
    """Build the kernel that renders a volume along rays.

    Its parameters, all of the type `fp`:

        volume      [x, y, z]  values at the centers of the box's cells. Differentiable.
        table       [k, 4]     red, green, blue, density for values 0 to 1. Differentiable.
        origins     [n, 3]     Differentiable.
        directions  [n, 3]     Differentiable.
        box         [6]        min x, y, z, max x, y, z
        offsets     [n]        the position of a sample in its interval, for each ray
        settings    [10]       see the head of the file
        color      [n, 3]     without a background
        opacity     [n]
        depth       [n]
        before      [n]        transmittance before a ray's last sample: the gradient goes back from there
        used        [n] int32  number of samples evaluated

    Args:
        lang: the engine's module.
        fp: "f32" or "f64".
        shaded: whether surfaces are lit.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    crossing, samples, place, look = build_walk(lang, fp=fp)
    row_of, entry = build_transfer(lang, fp=fp)
    lights, normal_of, lit, _ = build_lighting(lang, fp=fp)
    faintest = FAINTEST

    @lang.kernel
    def volume_render(
        volume: array,
        table: array,
        origins: array,
        directions: array,
        box: array,
        offsets: array,
        settings: array,
        color: array,
        opacity: array,
        depth: array,
        before: array,
        used: array,
    ):
        for ray in range(origins.shape[0]):
            near, far, _enters, _leaves = crossing(origins, directions, box, ray)
            count, pace, length = samples(directions, settings, near, far, ray)
            light, half = lights(directions, settings, ray)
            threshold = lang.max(settings[1], real(faintest))
            left, last, i = real(1.0), real(1.0), 0
            seen, far_off = lang.Vector([0.0, 0.0, 0.0], dt=real), real(0.0)
            while i < count and left >= threshold:
                t = near + (lang.cast(i, real) + offsets[ray]) * pace
                cell, part, _steep = place(volume, origins, directions, box, ray, t)
                value, _slope = look(volume, cell, part)
                row, share, _rise = row_of(table, value)
                here, density = entry(table, row, share)
                keep = lang.exp(-density * length)
                weight = left * (real(1.0) - keep)
                if lang.static(shaded):
                    if weight != real(0.0):
                        normal, _soft = normal_of(volume, box, settings, cell, part)
                        here = lit(here, settings, normal, light, half)
                for channel in lang.static(range(3)):
                    seen[channel] += weight * here[channel]
                far_off += weight * t
                last = left
                left = left * keep
                i += 1
            for channel in lang.static(range(3)):
                color[ray, channel] = seen[channel]
            opacity[ray] = real(1.0) - left
            depth[ray] = far_off
            before[ray] = last
            used[ray] = i

    return volume_render
