"""The kernels of `peers.py` in Numba, which does not differentiate: forward passes only.

Loops with `fastmath`, parallel over the outermost one. A splat, in which iterations meet, is serial: Numba has no
atomics on CPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch

from _blend import FAINTEST, MOST, OPAQUE, TILE
from _peer_cases import Given, Way


def numba_ways(threads: int) -> Mapping[str, Callable[[Given], Way]]:  # noqa: C901 - a function for each kernel
    """Return the way of each kernel, by name. Raise ImportError without Numba."""
    numba: Any = import_module("numba")
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    compiled, serial = numba.njit(parallel=True, fastmath=True), numba.njit(fastmath=True)
    prange = numba.prange
    # Numba works in float64 with Python's numbers.
    f = np.float32
    zero, half, one, two, four, hundredth, fiftieth = (f(x) for x in (0, 0.5, 1, 2, 4, 0.01, 0.02))
    faintest, most, opaque = f(FAINTEST), f(MOST), f(OPAQUE)

    @compiled
    def saxpy(x, y, z):
        for i in prange(len(x)):
            z[i] = f(2.5) * x[i] + y[i]

    @compiled
    def compositing(density, step, color, light):
        for r in prange(len(density)):
            through, red, green, blue = one, zero, zero, zero
            for s in range(density.shape[1]):
                e = np.exp(-density[r, s] * step[r, s])
                weight = through * (one - e)
                red += weight * color[r, s, 0]
                green += weight * color[r, s, 1]
                blue += weight * color[r, s, 2]
                through *= e
            light[r, 0], light[r, 1], light[r, 2] = red, green, blue

    @compiled
    def ragged(density, step, color, rays, light):
        for r in prange(len(rays)):
            through, red, green, blue = one, zero, zero, zero
            for s in range(rays[r, 0], rays[r, 0] + rays[r, 1]):
                e = np.exp(-density[s] * step[s])
                weight = through * (one - e)
                red += weight * color[s, 0]
                green += weight * color[s, 1]
                blue += weight * color[s, 2]
                through *= e
            light[r, 0], light[r, 1], light[r, 2] = red, green, blue

    @serial
    def splat(place, sharp, color, reach, image):
        image[:] = zero
        for i in range(len(place)):
            px, py = place[i, 0], place[i, 1]
            for y in range(max(int(py) - reach, 0), min(int(py) + reach, image.shape[0])):
                for x in range(max(int(px) - reach, 0), min(int(px) + reach, image.shape[1])):
                    dx, dy = f(x) + half - px, f(y) + half - py
                    alpha = np.exp(-sharp[i] * (dx * dx + dy * dy))
                    image[y, x, 0] += alpha * color[i, 0]
                    image[y, x, 1] += alpha * color[i, 1]
                    image[y, x, 2] += alpha * color[i, 2]

    @compiled
    def blend(mean, conic, color, opacity, ids, starts, image):
        h, w = image.shape[:2]
        for pixel in prange(h * w):
            y, x = pixel // w, pixel % w
            tile = (y // TILE) * (w // TILE) + x // TILE
            t, red, green, blue = one, zero, zero, zero
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                dx, dy = f(x) + half - mean[i, 0], f(y) + half - mean[i, 1]
                power = -half * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) - conic[i, 1] * dx * dy
                alpha = min(most, opacity[i] * np.exp(power))
                if alpha > faintest:
                    weight = alpha * t
                    red += weight * color[i, 0]
                    green += weight * color[i, 1]
                    blue += weight * color[i, 2]
                    t *= one - alpha
                    if t < opaque:
                        break
            image[y, x, 0], image[y, x, 1], image[y, x, 2] = red, green, blue

    @compiled
    def march(start, slope, light):
        for r in prange(len(start)):
            t, through, total = zero, one, zero
            while through > fiftieth and t < four:
                p = start[r] + slope[r] * t
                step = fiftieth + fiftieth * t
                e = np.exp(-two / (one + p * p) * step)
                total += through * (one - e) * p
                through *= e
                t += step
            light[r] = total

    @compiled
    def springs(x, v, k, x_new, v_new):
        for i in prange(len(x)):
            force = zero
            if i > 0:
                force -= k[i] * (x[i] - x[i - 1] - one)
            if i < len(x) - 1:
                force += k[i + 1] * (x[i + 1] - x[i] - one)
            speed = v[i] + hundredth * force
            v_new[i] = speed
            x_new[i] = x[i] + hundredth * speed

    kernels = (saxpy, compositing, ragged, splat, blend, march, springs)
    return {kernel.__name__: _way_of(kernel) for kernel in kernels}


def _way_of(kernel: Any) -> Callable[[Given], Way]:
    def way(at: Given) -> Way:
        inputs: list[Any] = [one.numpy() for one in at.inputs]
        if at.name == "splat":
            inputs.append(at.sizes["reach"])
        shapes: Sequence[Any] = [one.shape for one in at.cotangents]

        def forward() -> list[torch.Tensor]:
            outputs = [torch.empty(shape) for shape in shapes]
            kernel(*inputs, *(one.numpy() for one in outputs))
            return outputs

        return Way(forward)

    return way
