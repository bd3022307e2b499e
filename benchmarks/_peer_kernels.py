"""The kernels of `peers.py` for both engines, written naturally, without thought of machine code.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

from typing import Any

import tinsmith as ts
from _blend import SPEC
from _blend import blend as blend_kernel


def saxpy(lang: Any) -> ts.Op:
    array = lang.types.ndarray()

    @lang.kernel
    def saxpy(x: array, y: array, z: array):
        for i in range(x.shape[0]):
            z[i] = 2.5 * x[i] + y[i]

    return ts.op("x[n], y[n] -> z[n]", init={"z": "empty"})(saxpy)


def compositing(lang: Any) -> ts.Op:
    array = lang.types.ndarray()

    @lang.kernel
    def compositing(density: array, step: array, color: array, light: array):
        for r in range(density.shape[0]):
            through, red, green, blue = 1.0, 0.0, 0.0, 0.0
            for s in range(density.shape[1]):
                e = lang.exp(-density[r, s] * step[r, s])
                weight = through * (1.0 - e)
                red += weight * color[r, s, 0]
                green += weight * color[r, s, 1]
                blue += weight * color[r, s, 2]
                through *= e
            light[r, 0], light[r, 1], light[r, 2] = red, green, blue

    return ts.op("density[r, s], step[r, s], color[r, s, 3] -> light[r, 3]", init={"light": "empty"})(compositing)


def ragged(lang: Any) -> ts.Op:
    array = lang.types.ndarray()

    @lang.kernel
    def ragged(density: array, step: array, color: array, rays: array, light: array):
        for r in range(rays.shape[0]):
            through, red, green, blue = 1.0, 0.0, 0.0, 0.0
            for s in range(rays[r, 0], rays[r, 0] + rays[r, 1]):
                e = lang.exp(-density[s] * step[s])
                weight = through * (1.0 - e)
                red += weight * color[s, 0]
                green += weight * color[s, 1]
                blue += weight * color[s, 2]
                through *= e
            light[r, 0], light[r, 1], light[r, 2] = red, green, blue

    spec = "density[s], step[s], color[s, 3], segments rays[r, 2]: i32 -> light[r, 3]"
    return ts.op(spec, init={"light": "empty"})(ragged)


def splat(lang: Any) -> ts.Op:
    """Build the kernel that adds round Gaussians to an image, each within a square of `2 reach`."""
    array = lang.types.ndarray()

    @lang.kernel
    def splat(place: array, sharp: array, color: array, reach: lang.i32, image: array):
        for i in range(place.shape[0]):
            px, py = place[i, 0], place[i, 1]
            for y in range(
                lang.max(lang.cast(py, lang.i32) - reach, 0),
                lang.min(lang.cast(py, lang.i32) + reach, image.shape[0]),
            ):
                for x in range(
                    lang.max(lang.cast(px, lang.i32) - reach, 0),
                    lang.min(lang.cast(px, lang.i32) + reach, image.shape[1]),
                ):
                    dx, dy = x + 0.5 - px, y + 0.5 - py
                    alpha = lang.exp(-sharp[i] * (dx * dx + dy * dy))
                    for c in lang.static(range(3)):
                        image[y, x, c] += alpha * color[i, c]

    return ts.op("place[n, 2], sharp[n], color[n, 3] -> image[h, w, 3]")(splat)


def blend(lang: Any) -> ts.Op:
    return ts.op(SPEC, init={"image": "empty"})(blend_kernel(lang))


def march(lang: Any) -> ts.Op:
    """Build the kernel that accumulates light along rays through a fog of known shape, until little is transmitted."""
    array = lang.types.ndarray()

    @lang.kernel
    def march(start: array, slope: array, light: array):
        for r in range(start.shape[0]):
            t, through, total = 0.0, 1.0, 0.0
            while through > 0.02 and t < 4.0:
                p = start[r] + slope[r] * t
                density = 2.0 / (1.0 + p * p)
                step = 0.02 + 0.02 * t
                e = lang.exp(-density * step)
                total += through * (1.0 - e) * p
                through *= e
                t += step
            light[r] = total

    return ts.op("start[r], slope[r] -> light[r]", init={"light": "empty"})(march)


def springs(lang: Any) -> ts.Op:
    """Build the kernel of a step of masses in a row, with a spring between neighbors."""
    array = lang.types.ndarray()

    @lang.kernel
    def springs(x: array, v: array, k: array, x_new: array, v_new: array):
        for i in range(x.shape[0]):
            force = 0.0
            if i > 0:
                force -= k[i] * (x[i] - x[i - 1] - 1.0)
            if i < x.shape[0] - 1:
                force += k[i + 1] * (x[i + 1] - x[i] - 1.0)
            speed = v[i] + 0.01 * force
            v_new[i] = speed
            x_new[i] = x[i] + 0.01 * speed

    return ts.op("x[n], v[n], k[n] -> x_new[n], v_new[n]", init={"x_new": "empty", "v_new": "empty"})(springs)
