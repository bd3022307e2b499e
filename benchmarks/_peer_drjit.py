"""The kernels of `peers.py` in Dr.Jit on LLVM, with one lane for each ray, pixel or element, and Dr.Jit's own
gradients.

Loops over samples are symbolic, so that each kernel is one piece of machine code; their reverse needs to know the
greatest number of iterations, and keeps what each hands on. Inputs and cotangents are copied once, which is not
timed, nor is making tensors of the results.

`DRJIT_LIBLLVM_PATH` names LLVM's library, unless the system finds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from ctypes.util import find_library
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from _blend import FAINTEST, MOST, OPAQUE, TILE
from _peer_cases import STEPS, Given, Way


def drjit_ways(threads: int) -> Mapping[str, Callable[[Given], Way]]:  # noqa: C901 - a function for each kernel
    """Return the way of each kernel, by name. Raise ImportError without Dr.Jit or LLVM."""
    library = next(filter(None, map(find_library, ("LLVM-15", "LLVM-14", "LLVM"))), None)
    if library:
        os.environ.setdefault("DRJIT_LIBLLVM_PATH", library)
    dr: Any = import_module("drjit")
    kinds: Any = import_module("drjit.llvm.ad")
    Float, UInt32, Int32 = kinds.Float, kinds.UInt32, kinds.Int32
    try:
        dr.eval(Float(1) + 1)
    except RuntimeError as reason:
        raise ImportError(f"LLVM's library is missing: {reason}") from None
    dr.set_thread_count(threads)

    def along(count: Any, first: Any, arrays: Sequence[Any], longest: int) -> list[Any]:
        """Composite light along rays, given the first sample and the number of samples of each."""
        density, step, color = arrays

        def body(s: Any, through: Any, red: Any, green: Any, blue: Any) -> Any:
            at = first + s
            e = dr.exp(-dr.gather(Float, density, at) * dr.gather(Float, step, at))
            weight = through * (1 - e)
            red = dr.fma(weight, dr.gather(Float, color, at * 3), red)
            green = dr.fma(weight, dr.gather(Float, color, at * 3 + 1), green)
            blue = dr.fma(weight, dr.gather(Float, color, at * 3 + 2), blue)
            return s + 1, through * e, red, green, blue

        rays = len(first)
        state = (dr.zeros(UInt32, rays), dr.full(Float, 1, rays), *(dr.zeros(Float, rays) for _ in range(3)))
        last = dr.while_loop(state, lambda s, *_: s < count, body, max_iterations=longest)
        return list(last[2:])

    def saxpy(at: Given, arrays: Sequence[Any]) -> list[Any]:
        return [dr.fma(2.5, arrays[0], arrays[1])]

    def compositing(at: Given, arrays: Sequence[Any]) -> list[Any]:
        rays, samples = at.inputs[0].shape
        return along(UInt32(samples), dr.arange(UInt32, rays) * samples, arrays, samples)

    def ragged(at: Given, arrays: Sequence[Any]) -> list[Any]:
        rays = dr.arange(UInt32, len(at.inputs[3]))
        first, count = (UInt32(dr.gather(Int32, arrays[3], rays * 2 + column)) for column in (0, 1))
        return along(count, first, arrays[:3], int(at.inputs[3][:, 1].max()))

    def splat(at: Given, arrays: Sequence[Any]) -> list[Any]:
        """Render the squares with a lane for each pixel of each square."""
        place, sharp, color = arrays
        reach, h, w = (at.sizes[name] for name in ("reach", "h", "w"))
        lane = dr.arange(UInt32, 4 * reach * reach * len(at.inputs[0]))
        i, within = lane // (4 * reach * reach), lane % (4 * reach * reach)
        px, py = dr.gather(Float, place, i * 2), dr.gather(Float, place, i * 2 + 1)
        x = Int32(dr.detach(px)) - reach + Int32(within % (2 * reach))
        y = Int32(dr.detach(py)) - reach + Int32(within // (2 * reach))
        dx, dy = Float(x) + 0.5 - px, Float(y) + 0.5 - py
        alpha = dr.exp(-dr.gather(Float, sharp, i) * (dx * dx + dy * dy))
        is_inside = (x >= 0) & (x < w) & (y >= 0) & (y < h)
        image = dr.zeros(Float, h * w * 3)
        for c in range(3):
            light = alpha * dr.gather(Float, color, i * 3 + c)
            dr.scatter_add(image, light, UInt32(y * w + x) * 3 + c, is_inside)
        return [image]

    def blend(at: Given, arrays: Sequence[Any]) -> list[Any]:
        """Blend with a lane for each pixel."""
        mean, conic, color, opacity, ids, starts = arrays
        pixel = dr.arange(UInt32, at.side * at.side)
        x, y = pixel % at.side, pixel // at.side
        tile = (y // TILE) * (at.side // TILE) + x // TILE
        first, end = (UInt32(dr.gather(Int32, starts, tile + one)) for one in (0, 1))
        px, py = Float(x) + 0.5, Float(y) + 0.5

        def body(k: Any, t: Any, red: Any, green: Any, blue: Any) -> Any:
            i = UInt32(dr.gather(Int32, ids, k))
            dx, dy = px - dr.gather(Float, mean, i * 2), py - dr.gather(Float, mean, i * 2 + 1)
            a, b, c = (dr.gather(Float, conic, i * 3 + entry) for entry in range(3))
            power = -0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy
            alpha = dr.gather(Float, opacity, i) * dr.exp(power)
            alpha = dr.select(alpha < MOST, alpha, MOST)  # LLVM 15 cannot compile `dr.minimum` (Dr.Jit 1.5.0)
            alpha = dr.select(alpha > FAINTEST, alpha, 0)
            weight = alpha * t
            red = dr.fma(weight, dr.gather(Float, color, i * 3), red)
            green = dr.fma(weight, dr.gather(Float, color, i * 3 + 1), green)
            blue = dr.fma(weight, dr.gather(Float, color, i * 3 + 2), blue)
            return k + 1, t * (1 - alpha), red, green, blue

        state = (first, dr.full(Float, 1, len(pixel)), *(dr.zeros(Float, len(pixel)) for _ in range(3)))
        longest = int(at.inputs[5].diff().max())
        last = dr.while_loop(state, lambda k, t, *_: (k < end) & (t >= OPAQUE), body, max_iterations=longest)
        return list(last[2:])

    def march(at: Given, arrays: Sequence[Any]) -> list[Any]:
        start, slope = arrays

        def body(t: Any, through: Any, total: Any) -> Any:
            p = start + slope * t
            step = 0.02 + 0.02 * t
            e = dr.exp(-2.0 / (1.0 + p * p) * step)
            return t + step, through * e, total + through * (1.0 - e) * p

        rays = len(at.inputs[0])
        state = (dr.zeros(Float, rays), dr.full(Float, 1, rays), dr.zeros(Float, rays))
        runs = lambda t, through, _: (through > 0.02) & (t < 4.0)  # noqa: E731
        return [dr.while_loop(state, runs, body, max_iterations=STEPS)[2]]

    def springs(at: Given, arrays: Sequence[Any]) -> list[Any]:
        x, v, k = arrays
        i, last = dr.arange(UInt32, len(at.inputs[0])), len(at.inputs[0]) - 1
        has_left, has_right = i > 0, i < last
        left = dr.gather(Float, k, i) * (x - dr.gather(Float, x, i - 1, has_left) - 1.0)
        right = dr.gather(Float, k, i + 1, has_right) * (dr.gather(Float, x, i + 1, has_right) - x - 1.0)
        force = dr.select(has_right, right, 0) - dr.select(has_left, left, 0)
        speed = v + 0.01 * force
        return [x + 0.01 * speed, speed]

    def held(one: Tensor) -> Any:
        flat = one.flatten().numpy()
        array = Float(flat) if one.is_floating_point() else Int32(flat)
        dr.eval(array)
        return array

    def way_of(kernel: Callable[[Given, Sequence[Any]], list[Any]]) -> Callable[[Given], Way]:
        def way(at: Given) -> Way:
            inputs = [held(one) for one in at.inputs]
            leaves = [one for one, tensor in zip(inputs, at.inputs, strict=True) if tensor.is_floating_point()]
            is_split = at.name in ("compositing", "ragged", "blend")  # red, green and blue are arrays of their own
            channels = [one.unbind(-1) if is_split else [one] for one in at.cotangents]
            cotangents = [held(one.contiguous()) for several in channels for one in several]

            def forward() -> list[Any]:
                outputs = kernel(at, inputs)
                dr.eval(outputs)
                dr.sync_thread()
                return outputs

            def both() -> list[Any]:
                dr.enable_grad(*leaves)
                outputs = kernel(at, inputs)
                for one, cotangent in zip(outputs, cotangents, strict=True):
                    dr.set_grad(one, cotangent)
                    dr.enqueue(dr.ADMode.Backward, one)
                dr.traverse(dr.ADMode.Backward)
                gradients = [dr.grad(one) for one in leaves]
                dr.eval(
                    gradients, outputs
                )  # if only gradients are requested, Dr.Jit skips the unused part of the forward pass
                dr.sync_thread()
                dr.disable_grad(*leaves)
                return gradients

            def tensors(arrays: list[Any]) -> list[Tensor]:
                made = [torch.from_numpy(dr.detach(one).numpy()) for one in arrays]
                is_output = is_split and len(made) == 3 and len(made[0]) == at.cotangents[0][..., 0].numel()
                return [torch.stack(made, -1)] if is_output else made

            return Way(forward, both, tensors)

        return way

    kernels = (saxpy, compositing, ragged, splat, blend, march, springs)
    return {kernel.__name__: way_of(kernel) for kernel in kernels}
