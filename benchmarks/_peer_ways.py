"""The same as `_peer_kernels.py` by plain torch, Numba, Warp and Dr.Jit, each as its own users write it.

A way is a function of tensors. Those of torch are differentiable; of the others, forward passes alone are here. Numba
and Warp work on the tensors' memory; Dr.Jit gets its own copy of the inputs once, which is not timed.
"""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from ctypes.util import find_library
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

Way = Callable[..., Any]


# Plain torch --------------------------------------------------------------------------------
def torch_saxpy(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(y, x, alpha=2.5)


def torch_compositing(density: Tensor, step: Tensor, colour: Tensor) -> Tensor:
    e = torch.exp(-density * step)
    through = torch.cat([torch.ones_like(e[:, :1]), e[:, :-1]], 1).cumprod(1)
    return ((through * (1 - e))[..., None] * colour).sum(1)


def torch_ragged(density: Tensor, step: Tensor, colour: Tensor, rays: Tensor) -> Tensor:
    absorbed = density * step
    before = absorbed.cumsum(0) - absorbed
    ray = torch.arange(len(rays)).repeat_interleave(rays[:, 1])
    start = rays[:, 0].long().clamp(max=len(density) - 1)
    through = torch.exp(before.index_select(0, start).index_select(0, ray) - before)
    weights = through * (1 - torch.exp(-absorbed))
    return weights.new_zeros(len(rays), 3).index_add(0, ray, weights[:, None] * colour)


def torch_march(start: Tensor, slope: Tensor) -> Tensor:
    t, through, total = torch.zeros_like(start), torch.ones_like(start), torch.zeros_like(start)
    while True:
        runs = (through > 0.02) & (t < 4.0)
        if not runs.any():
            return total
        p = start + slope * t
        step = 0.02 + 0.02 * t
        e = torch.exp(-2.0 / (1.0 + p * p) * step)
        total = torch.where(runs, total + through * (1.0 - e) * p, total)
        through = torch.where(runs, through * e, through)
        t = torch.where(runs, t + step, t)


def torch_springs(x: Tensor, v: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    pull = k[1:] * (x[1:] - x[:-1] - 1.0)
    force = torch.nn.functional.pad(pull, (0, 1)) - torch.nn.functional.pad(pull, (1, 0))
    speed = v + 0.01 * force
    return x + 0.01 * speed, speed


TORCH: dict[str, Way] = {
    "saxpy": torch_saxpy,
    "compositing": torch_compositing,
    "ragged": torch_ragged,
    "march": torch_march,
    "springs": torch_springs,
}


# Numba --------------------------------------------------------------------------------------
def numba_ways() -> dict[str, Way]:
    """Loops with `fastmath`, parallel over the outermost one. Their results are tensors anew in each call."""
    numba: Any = import_module("numba")

    numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
    compiled = numba.njit(parallel=True, fastmath=True)
    prange = numba.prange
    one, two, half = np.float32(1), np.float32(2), np.float32(0.02)

    @compiled
    def saxpy(x, y, z):
        for i in prange(len(x)):
            z[i] = np.float32(2.5) * x[i] + y[i]

    @compiled
    def compositing(density, step, colour, light):
        for r in prange(len(density)):
            through, red, green, blue = one, np.float32(0), np.float32(0), np.float32(0)
            for s in range(density.shape[1]):
                e = np.exp(-density[r, s] * step[r, s])
                weight = through * (one - e)
                red += weight * colour[r, s, 0]
                green += weight * colour[r, s, 1]
                blue += weight * colour[r, s, 2]
                through *= e
            light[r, 0], light[r, 1], light[r, 2] = red, green, blue

    @compiled
    def march(start, slope, light):
        for r in prange(len(start)):
            t, through, total = np.float32(0), one, np.float32(0)
            while through > half and t < np.float32(4):
                p = start[r] + slope[r] * t
                step = half + half * t
                e = np.exp(-two / (one + p * p) * step)
                total += through * (one - e) * p
                through *= e
                t += step
            light[r] = total

    def way(kernel: Any, shape: Callable[..., Sequence[int]]) -> Way:
        def run(*inputs: Tensor) -> Tensor:
            out = torch.empty(*shape(*inputs))
            kernel(*(one.detach().numpy() for one in inputs), out.numpy())
            return out

        return run

    return {
        "saxpy": way(saxpy, lambda x, _: x.shape),
        "compositing": way(compositing, lambda density, *_: (len(density), 3)),
        "march": way(march, lambda start, _: start.shape),
    }


# Warp ---------------------------------------------------------------------------------------
def warp_ways() -> dict[str, Way]:
    """Warp runs a kernel on one thread where there is no GPU."""
    wp: Any = import_module("warp")

    wp.config.quiet = True
    wp.init()

    @wp.kernel
    def saxpy(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=float)):
        i = wp.tid()
        z[i] = 2.5 * x[i] + y[i]

    @wp.kernel
    def compositing(
        density: wp.array2d(dtype=float),
        step: wp.array2d(dtype=float),
        colour: wp.array3d(dtype=float),
        light: wp.array2d(dtype=float),
    ):
        r = wp.tid()
        through = float(1.0)  # noqa: UP018 - a variable to Warp, where a literal is a constant
        red = float(0.0)  # noqa: UP018 - a variable to Warp, where a literal is a constant
        green = float(0.0)  # noqa: UP018 - a variable to Warp, where a literal is a constant
        blue = float(0.0)  # noqa: UP018 - a variable to Warp, where a literal is a constant
        for s in range(density.shape[1]):
            e = wp.exp(-density[r, s] * step[r, s])
            weight = through * (1.0 - e)
            red += weight * colour[r, s, 0]
            green += weight * colour[r, s, 1]
            blue += weight * colour[r, s, 2]
            through *= e
        light[r, 0] = red
        light[r, 1] = green
        light[r, 2] = blue

    def way(kernel: Any, shape: Callable[..., Sequence[int]]) -> Way:
        def run(*inputs: Tensor) -> Tensor:
            out = torch.empty(*shape(*inputs))
            arrays = [wp.from_torch(one.detach()) for one in (*inputs, out)]
            wp.launch(kernel, len(inputs[0]), arrays[:-1], arrays[-1:], device="cpu")
            return out

        return run

    return {
        "saxpy": way(saxpy, lambda x, _: x.shape),
        "compositing": way(compositing, lambda density, *_: (len(density), 3)),
    }


# Dr.Jit -------------------------------------------------------------------------------------
def drjit_ways(inputs: Mapping[str, Sequence[Tensor]]) -> dict[str, Way]:
    """Dr.Jit on LLVM, of the inputs as they are now; `DRJIT_LIBLLVM_PATH` names LLVM's library, unless it is found."""
    found = find_library("LLVM-15") or find_library("LLVM-14") or find_library("LLVM")
    if found:
        os.environ.setdefault("DRJIT_LIBLLVM_PATH", found)
    dr: Any = import_module("drjit")
    kinds: Any = import_module("drjit.llvm.ad")
    Float, UInt32 = kinds.Float, kinds.UInt32

    dr.set_thread_count(torch.get_num_threads())
    held = {name: [Float(one.detach().flatten().numpy()) for one in tensors] for name, tensors in inputs.items()}
    rays, samples = inputs["compositing"][0].shape

    def finished(*results: Any) -> Any:
        dr.eval(*results)
        dr.sync_thread()
        return results

    def saxpy(*_: Tensor) -> Tensor:
        x, y = held["saxpy"]
        (z,) = finished(dr.fma(2.5, x, y))
        return torch.from_numpy(z.numpy())

    def along(density: Any, step: Any, colour: Any) -> Any:
        first = dr.arange(UInt32, rays) * samples

        def body(s: Any, through: Any, red: Any, green: Any, blue: Any) -> Any:
            e = dr.exp(-dr.gather(Float, density, first + s) * dr.gather(Float, step, first + s))
            weight = through * (1 - e)
            red += weight * dr.gather(Float, colour, (first + s) * 3)
            green += weight * dr.gather(Float, colour, (first + s) * 3 + 1)
            blue += weight * dr.gather(Float, colour, (first + s) * 3 + 2)
            return s + 1, through * e, red, green, blue

        state = (UInt32(0), Float(1), Float(0), Float(0), Float(0))
        return dr.while_loop(state, lambda s, *_: s < samples, body)[2:]

    def compositing(*_: Tensor) -> Tensor:
        return torch.stack([torch.from_numpy(one.numpy()) for one in finished(*along(*held["compositing"]))], 1)

    def marched(start: Any, slope: Any) -> Any:
        def body(t: Any, through: Any, total: Any) -> Any:
            p = start + slope * t
            step = 0.02 + 0.02 * t
            e = dr.exp(-2.0 / (1.0 + p * p) * step)
            return t + step, through * e, total + through * (1.0 - e) * p

        state = (dr.zeros(Float, len(start)), dr.full(Float, 1, len(start)), dr.zeros(Float, len(start)))
        return dr.while_loop(state, lambda t, through, _: (through > 0.02) & (t < 4.0), body)[2]

    def march(*_: Tensor) -> Tensor:
        return torch.from_numpy(finished(marched(*held["march"]))[0].numpy())

    return {"saxpy": saxpy, "compositing": compositing, "march": march}
