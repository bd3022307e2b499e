"""The kernels of `peers.py` in Warp, differentiated by `wp.Tape`. Without a GPU they run on one thread.

Its reverse pass computes again what an iteration of a loop with a length known at run time needs, but not what
earlier iterations handed on: Warp's documentation says that such values are to be kept in arrays. So what is let
through lies in one, a place for each sample and one more; the reverse reads it there. The forward passes that are
timed alone keep it in a local. `while` and `break` have no right reverse: those loops have as many iterations as
there may be, and a test.

Arrays, gradients and the memory for what is let through are there before, and are not timed; setting gradients to
zero is.

Warp reads annotations as values: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from torch import Tensor

from _blend import FAINTEST, MOST, OPAQUE, TILE
from _peer_cases import STEPS, Given, Way


def warp_ways() -> Mapping[str, Callable[[Given], Way]]:  # noqa: C901 - a function for each kernel
    """Return the way of each kernel, by name. Raise ImportError without Warp."""
    wp: Any = import_module("warp")
    wp.config.quiet = True
    wp.init()
    f1, f2, f3 = wp.array(dtype=float), wp.array2d(dtype=float), wp.array3d(dtype=float)
    i1, i2 = wp.array(dtype=int), wp.array2d(dtype=int)
    faintest, most, opaque = (wp.constant(one) for one in (FAINTEST, MOST, OPAQUE))
    side, steps = wp.constant(TILE), wp.constant(STEPS)
    # ruff: noqa: UP018 - `float(1.0)` is a variable to Warp, where a literal is a constant

    @wp.kernel
    def saxpy(x: f1, y: f1, z: f1):
        i = wp.tid()
        z[i] = 2.5 * x[i] + y[i]

    @wp.kernel(enable_backward=False)
    def compositing(density: f2, step: f2, color: f3, light: f2):
        r = wp.tid()
        through = float(1.0)
        red = float(0.0)
        green = float(0.0)
        blue = float(0.0)
        for s in range(density.shape[1]):
            e = wp.exp(-density[r, s] * step[r, s])
            weight = through * (1.0 - e)
            red += weight * color[r, s, 0]
            green += weight * color[r, s, 1]
            blue += weight * color[r, s, 2]
            through *= e
        light[r, 0] = red
        light[r, 1] = green
        light[r, 2] = blue

    @wp.kernel
    def compositing_kept(density: f2, step: f2, color: f3, kept: f2, light: f2):
        r = wp.tid()
        red = float(0.0)
        green = float(0.0)
        blue = float(0.0)
        kept[r, 0] = 1.0
        for s in range(density.shape[1]):
            e = wp.exp(-density[r, s] * step[r, s])
            through = kept[r, s]
            weight = through * (1.0 - e)
            red += weight * color[r, s, 0]
            green += weight * color[r, s, 1]
            blue += weight * color[r, s, 2]
            kept[r, s + 1] = through * e
        light[r, 0] = red
        light[r, 1] = green
        light[r, 2] = blue

    @wp.kernel(enable_backward=False)
    def ragged(density: f1, step: f1, color: f2, rays: i2, light: f2):
        r = wp.tid()
        through = float(1.0)
        red = float(0.0)
        green = float(0.0)
        blue = float(0.0)
        for s in range(rays[r, 0], rays[r, 0] + rays[r, 1]):
            e = wp.exp(-density[s] * step[s])
            weight = through * (1.0 - e)
            red += weight * color[s, 0]
            green += weight * color[s, 1]
            blue += weight * color[s, 2]
            through *= e
        light[r, 0] = red
        light[r, 1] = green
        light[r, 2] = blue

    @wp.kernel
    def ragged_kept(density: f1, step: f1, color: f2, rays: i2, kept: f1, light: f2):
        r = wp.tid()
        red = float(0.0)
        green = float(0.0)
        blue = float(0.0)
        kept[rays[r, 0] + r] = 1.0
        for s in range(rays[r, 0], rays[r, 0] + rays[r, 1]):
            e = wp.exp(-density[s] * step[s])
            through = kept[s + r]
            weight = through * (1.0 - e)
            red += weight * color[s, 0]
            green += weight * color[s, 1]
            blue += weight * color[s, 2]
            kept[s + r + 1] = through * e
        light[r, 0] = red
        light[r, 1] = green
        light[r, 2] = blue

    @wp.kernel
    def splat(place: f2, sharp: f1, color: f2, reach: int, image: f3):
        i = wp.tid()
        px = place[i, 0]
        py = place[i, 1]
        for y in range(wp.max(int(py) - reach, 0), wp.min(int(py) + reach, image.shape[0])):
            for x in range(wp.max(int(px) - reach, 0), wp.min(int(px) + reach, image.shape[1])):
                dx = float(x) + 0.5 - px
                dy = float(y) + 0.5 - py
                alpha = wp.exp(-sharp[i] * (dx * dx + dy * dy))
                for c in range(3):
                    wp.atomic_add(image, y, x, c, alpha * color[i, c])

    @wp.kernel(enable_backward=False)
    def blend(mean: f2, conic: f2, color: f2, opacity: f1, ids: i1, starts: i1, image: f3):
        y, x = wp.tid()
        tile = (y // side) * (image.shape[1] // side) + x // side
        t = float(1.0)
        red = float(0.0)
        green = float(0.0)
        blue = float(0.0)
        for k in range(starts[tile], starts[tile + 1]):
            i = ids[k]
            dx = float(x) + 0.5 - mean[i, 0]
            dy = float(y) + 0.5 - mean[i, 1]
            power = -0.5 * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) - conic[i, 1] * dx * dy
            alpha = wp.min(most, opacity[i] * wp.exp(power))
            if alpha > faintest:
                weight = alpha * t
                red += weight * color[i, 0]
                green += weight * color[i, 1]
                blue += weight * color[i, 2]
                t *= 1.0 - alpha
                if t < opaque:
                    break
        image[y, x, 0] = red
        image[y, x, 1] = green
        image[y, x, 2] = blue

    @wp.kernel
    def blend_kept(mean: f2, conic: f2, color: f2, opacity: f1, ids: i1, starts: i1, kept: f2, image: f3):
        y, x = wp.tid()
        tile = (y // side) * (image.shape[1] // side) + x // side
        place = (y % side) * side + x % side
        red = float(0.0)
        green = float(0.0)
        blue = float(0.0)
        kept[starts[tile] + tile, place] = 1.0
        for k in range(starts[tile], starts[tile + 1]):
            t = kept[k + tile, place]
            if t >= opaque:
                i = ids[k]
                dx = float(x) + 0.5 - mean[i, 0]
                dy = float(y) + 0.5 - mean[i, 1]
                power = -0.5 * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) - conic[i, 1] * dx * dy
                alpha = wp.min(most, opacity[i] * wp.exp(power))
                if alpha > faintest:
                    weight = alpha * t
                    red += weight * color[i, 0]
                    green += weight * color[i, 1]
                    blue += weight * color[i, 2]
                    kept[k + tile + 1, place] = t * (1.0 - alpha)
                else:
                    kept[k + tile + 1, place] = t
            else:
                kept[k + tile + 1, place] = t
        image[y, x, 0] = red
        image[y, x, 1] = green
        image[y, x, 2] = blue

    @wp.kernel(enable_backward=False)
    def march(start: f1, slope: f1, light: f1):
        r = wp.tid()
        t = float(0.0)
        through = float(1.0)
        total = float(0.0)
        while through > 0.02 and t < 4.0:
            p = start[r] + slope[r] * t
            step = 0.02 + 0.02 * t
            e = wp.exp(-2.0 / (1.0 + p * p) * step)
            total += through * (1.0 - e) * p
            through *= e
            t += step
        light[r] = total

    @wp.kernel
    def march_kept(start: f1, slope: f1, kept: f2, light: f1):
        r = wp.tid()
        t = float(0.0)
        total = float(0.0)
        kept[r, 0] = 1.0
        for n in range(start.shape[0] * 0 + steps):  # at run time: loops of a known length are unrolled
            t = wp.pow(1.02, float(n)) - 1.0
            through = kept[r, n]
            if through > 0.02 and t < 4.0:
                p = start[r] + slope[r] * t
                step = 0.02 + 0.02 * t
                e = wp.exp(-2.0 / (1.0 + p * p) * step)
                total += through * (1.0 - e) * p
                kept[r, n + 1] = through * e
            else:
                kept[r, n + 1] = through
        light[r] = total

    @wp.kernel
    def springs(x: f1, v: f1, k: f1, x_new: f1, v_new: f1):
        i = wp.tid()
        force = float(0.0)
        if i > 0:
            force -= k[i] * (x[i] - x[i - 1] - 1.0)
        if i < x.shape[0] - 1:
            force += k[i + 1] * (x[i + 1] - x[i] - 1.0)
        speed = v[i] + 0.01 * force
        v_new[i] = speed
        x_new[i] = x[i] + 0.01 * speed

    def array_of(one: Tensor) -> Any:
        return wp.from_torch(one.clone(), requires_grad=one.is_floating_point())

    def zeros(*shape: int) -> Any:
        return wp.zeros(shape, dtype=float, device="cpu", requires_grad=True)

    def way_of(alone: Any, kernel: Any, kept: Callable[[Given], tuple[int, ...]] | None) -> Callable[[Given], Way]:
        def way(at: Given) -> Way:
            inputs: list[Any] = [array_of(one) for one in at.inputs]
            leaves = [one for one in inputs if one.requires_grad]
            outputs = [zeros(*one.shape) for one in at.cotangents]
            cotangents = [wp.from_torch(one) for one in at.cotangents]
            size = (at.side, at.side) if at.name == "blend" else len(at.inputs[0])
            size = len(at.inputs[3]) if at.name == "ragged" else size
            more = [at.sizes["reach"]] if at.name == "splat" else []
            space = [zeros(*kept(at))] if kept else []

            def launch(which: Any, *memory: Any) -> None:
                if at.name == "splat":
                    outputs[0].zero_()
                wp.launch(which, size, [*inputs, *more, *memory], outputs, device="cpu")

            def forward() -> list[Any]:
                launch(alone)
                return outputs

            def both() -> list[Any]:
                tape = wp.Tape()
                with tape:
                    launch(kernel, *space)
                for one in (*leaves, *space):
                    one.grad.zero_()
                for one, cotangent in zip(outputs, cotangents, strict=True):  # own memory: the reverse zeroes it
                    wp.copy(one.grad, cotangent)
                tape.backward()
                return [one.grad for one in leaves]

            return Way(forward, both, lambda arrays: [wp.to_torch(one).detach().clone() for one in arrays])

        return way

    return {
        "saxpy": way_of(saxpy, saxpy, None),
        "compositing": way_of(compositing, compositing_kept, lambda at: (len(at.inputs[0]), at.inputs[0].shape[1] + 1)),
        "ragged": way_of(ragged, ragged_kept, lambda at: (len(at.inputs[0]) + len(at.inputs[3]),)),
        "splat": way_of(splat, splat, None),
        "blend": way_of(blend, blend_kept, lambda at: (len(at.inputs[4]) + len(at.inputs[5]), TILE * TILE)),
        "march": way_of(march, march_kept, lambda at: (len(at.inputs[0]), STEPS + 1)),
        "springs": way_of(springs, springs, None),
    }
