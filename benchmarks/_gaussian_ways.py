"""Splatting of 3-D Gaussians in plain torch, one tile at a time; scenes; and the memory of a step.

    python benchmarks/_gaussian_ways.py WAY GAUSSIANS SIDE

prints bytes: of inputs; of inputs, gradients, tile lists and image together; and of inputs and what the process grew by
at most during a step, forward and backward. A step before it has compiled what there is to compile. Linux only: the
peak is set back by /proc/self/clear_refs.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}

import torch
from torch import Tensor

from _gaussian_hand_ops import FLOATS, Order, build_ops, replace_ops
from tinsmith.render.gaussians import rasterization

ENGINES = ("taichi", "quadrants")
TILE = 16
FAINTEST, MOST, OPAQUE = 1 / 255, 0.999, 1e-4
Way = Callable[..., Sequence[Tensor]]
"""Means, quats, scales, opacities, colors, view matrix, intrinsics, side -> colors and alpha, (side, side, 3 and 1)."""
LISTS = ("tiles_per_gauss", "isect_ids", "flatten_ids", "isect_offsets")
"""What of the dict of a rasterization is tile lists."""


def scene(n: int, side: int) -> list[Tensor]:
    """Draw a cloud of Gaussians that fills the picture, each some pixels large; the last two tensors are the camera."""
    means = torch.randn(n, 3) * torch.tensor([0.7, 0.7, 0.5])
    scales = (0.5 + torch.rand(n, 3)) * 0.02 * (10_000 / n) ** 0.5
    opacities, colors = 0.1 + 0.8 * torch.rand(n), torch.rand(n, 3)
    view = torch.eye(4)
    view[2, 3] = 4.0
    intrinsics = torch.tensor([[side, 0, side / 2], [0, side, side / 2], [0, 0, 1.0]])
    return [means, torch.randn(n, 4), scales, opacities, colors, view, intrinsics]


def ours(engine: str) -> Way:
    """Return `ts.render.gaussians` as a function that renders colors and alpha."""

    def render(*given: Tensor, side: int) -> Sequence[Tensor]:
        return rendered(engine, *given, side=side)[:2]

    return render


def rendered(engine: str, *given: Tensor, side: int) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Render colors and alpha with `ts.render.gaussians`; return them with the dict of intermediate results."""
    *gaussians, view, intrinsics = given
    images, alphas, meta = rasterization(*gaussians, view[None], intrinsics[None], side, side, engine=engine)
    # views in both directions, since the gradient of `images[0]` would be copied into a batch of zeros
    return images.squeeze(0), alphas.squeeze(0), meta


def by_hand(engine: str, order: Order) -> Way:
    """Return the same renderer with hand-written gradients."""
    ops: dict[str, Any] = {}

    def render(*given: Tensor, side: int) -> Sequence[Tensor]:
        kind = FLOATS[given[0].dtype]
        if kind not in ops:
            ops[kind] = build_ops(engine, fp=kind, order=order)
        with replace_ops(ops[kind], engine, given[0]):
            return rendered(engine, *given, side=side)[:2]

    return render


def by_tiles(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    view: Tensor,
    intrinsics: Tensor,
    *,
    side: int,
) -> Sequence[Tensor]:
    """Render in plain torch: project all Gaussians at once and sort them by depth, then blend each tile's."""
    mean2d, conic, depth, radius = _projected(means, quats, scales, opacities, view, intrinsics, side)
    order = depth.detach().argsort()
    seen = order[(radius[order] > 0).all(-1) & (depth[order] > 0.01)]
    shown = torch.cat([colors, torch.ones_like(colors[:, :1])], -1)
    places = torch.arange(TILE, device=means.device) + 0.5
    low, high = mean2d.detach() - radius, mean2d.detach() + radius
    rows = []
    for top in range(0, side, TILE):
        in_row = seen[(high[seen, 1] > top) & (low[seen, 1] < top + TILE)]
        tiles = []
        for begin in range(0, side, TILE):
            i = in_row[(high[in_row, 0] > begin) & (low[in_row, 0] < begin + TILE)]
            dx = (begin + places)[None, :, None] - mean2d[i, 0]
            dy = (top + places)[:, None, None] - mean2d[i, 1]
            power = 0.5 * (conic[i, 0] * dx * dx + conic[i, 2] * dy * dy) + conic[i, 1] * dx * dy
            alpha = (opacities[i] * (-power).exp()).clamp(max=MOST)
            alpha = torch.where(alpha >= FAINTEST, alpha, 0.0)
            through = torch.cumprod(1.0 - alpha, -1)
            before = torch.cat([torch.ones_like(through[..., :1]), through[..., :-1]], -1)
            tiles.append(torch.where(through > OPAQUE, alpha * before, 0.0) @ shown[i])
        rows.append(torch.cat(tiles, 1))
    return torch.cat(rows, 0).split([3, 1], -1)


def _projected(
    means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, view: Tensor, intrinsics: Tensor, side: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return centers, conics, depths and radii of Gaussians in the image."""
    w, x, y, z = torch.nn.functional.normalize(quats, dim=-1).unbind(-1)
    turn = torch.stack(
        [
            *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
            *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        ],
        -1,
    ).view(-1, 3, 3)
    half = turn * scales[:, None]
    point = means @ view[:3, :3].T + view[:3, 3]
    depth, focal, middle = point[:, 2], intrinsics.diagonal()[:2], intrinsics[:2, 2]
    flat = point[:, :2] / depth[:, None]
    edge = 0.5 * side / focal * 1.3
    edged = torch.minimum(torch.maximum(flat, -edge), edge) * focal / depth[:, None]
    zero = torch.zeros_like(depth)
    linear = torch.stack([focal[0] / depth, zero, -edged[:, 0], zero, focal[1] / depth, -edged[:, 1]], -1).view(
        -1, 2, 3
    )
    spread = linear @ view[:3, :3] @ half
    covar = spread @ spread.mT + 0.3 * torch.eye(2, device=means.device)
    a, b, c = covar[:, 0, 0], covar[:, 0, 1], covar[:, 1, 1]
    area = a * c - b * b
    with torch.no_grad():
        extent = (2 * (255 * opacities).clamp(min=1).log()).sqrt()
        radius = (extent[:, None] * torch.stack([a, c], -1).sqrt()).ceil()
    return flat * focal + middle, torch.stack([c, -b, a], -1) / area[:, None], depth, radius


def step(way: Way, given: Sequence[Tensor], side: int) -> Callable[[], Sequence[Tensor]]:
    """Return a call of a way, forward and backward, with the gradients by all parameters of the Gaussians."""
    leaves = [tensor.clone().requires_grad_() for tensor in given[:5]]
    draw = torch.Generator().manual_seed(1)
    cotangents = [torch.rand(side, side, size, generator=draw, dtype=given[0].dtype) for size in (3, 1)]

    def run() -> Sequence[Tensor]:
        return torch.autograd.grad(way(*leaves, *given[5:], side=side), leaves, cotangents)

    return run


def way_of(name: str) -> Way:
    return by_tiles if name == "torch" else ours(name)


class Memory(NamedTuple):
    """Memory in bytes.

    Attributes:
        inputs: the inputs.
        needed: inputs, gradients, tile lists and image.
        taken: the inputs and the peak of a step.
    """

    inputs: int
    needed: int
    taken: int


def measure_memory(name: str, n: int, side: int) -> Memory:
    way = way_of(name)
    given = scene(n, side)
    size = sum(tensor.nbytes for tensor in given)
    run = step(way, given, side)
    needed = size + sum(tensor.nbytes for tensor in run())  # and compiles
    with torch.no_grad():
        images, alphas, meta = rendered("taichi" if name == "torch" else name, *given, side=side)
    needed += images.nbytes + alphas.nbytes + sum(meta[key].nbytes for key in LISTS)
    del images, alphas, meta
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _of_status("VmRSS")
    run()
    return Memory(size, needed, size + _of_status("VmHWM") - before)


def _of_status(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert match is not None
    return 1024 * int(match[1])


def measure_in_a_process(name: str, n: int, side: int) -> Memory:
    """Measure the memory of a step in a new process."""
    command = [sys.executable, str(Path(__file__)), name, str(n), str(side)]
    # Let malloc map each tensor by itself and unmap it when it is freed, so that only used memory counts.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return Memory(*map(int, done.stdout.split()[-3:]))


if __name__ == "__main__":
    torch.manual_seed(0)
    print(*measure_memory(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
