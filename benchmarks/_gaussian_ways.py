"""Splatting of 3-D Gaussians in plain torch, a tile at a time; scenes; and what memory a step takes.

    python benchmarks/_gaussian_ways.py WAY GAUSSIANS SIDE

prints the inputs' bytes and those that the process grew by at most during a step: forward and backward. A smaller step
has compiled what there is to compile. Linux only: the peak is set back by /proc/self/clear_refs.
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

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}

import torch
from torch import Tensor

from tinsmith.render.gaussians import rasterization

ENGINES = ("taichi", "quadrants")
TILE = 16
FAINTEST, MOST, OPAQUE = 1 / 255, 0.999, 1e-4
Way = Callable[..., Tensor]
"""Means, quats, scales, opacities, colors, view matrix, intrinsics, side -> image, alpha last."""


def scene(n: int, side: int) -> list[Tensor]:
    """A cloud of Gaussians that fills the picture, each some pixels large; the last two are the camera."""
    means = torch.randn(n, 3) * torch.tensor([0.7, 0.7, 0.5])
    scales = (0.5 + torch.rand(n, 3)) * 0.02 * (10_000 / n) ** 0.5
    opacities, colors = 0.1 + 0.8 * torch.rand(n), torch.rand(n, 3)
    view = torch.eye(4)
    view[2, 3] = 4.0
    intrinsics = torch.tensor([[side, 0, side / 2], [0, side, side / 2], [0, 0, 1.0]])
    return [means, torch.randn(n, 4), scales, opacities, colors, view, intrinsics]


def ours(engine: str) -> Way:
    """`ts.render.gaussians`, colors and alpha."""

    def render(*given: Tensor, side: int) -> Tensor:
        *gaussians, view, intrinsics = given
        images, alphas, _ = rasterization(*gaussians, view[None], intrinsics[None], side, side, engine=engine)
        return torch.cat([images[0], alphas[0]], -1)

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
) -> Tensor:
    """As one writes it in torch: Gaussians projected at once and sorted by depth, then each tile with those in it."""
    mean2d, conic, depth, radius = _projected(means, quats, scales, opacities, view, intrinsics, side)
    order = depth.detach().argsort()
    seen = order[(radius[order] > 0).all(-1) & (depth[order] > 0.01)]
    shown = torch.cat([colors, torch.ones_like(colors[:, :1])], -1)
    places = torch.arange(TILE) + 0.5
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
    return torch.cat(rows, 0)


def _projected(
    means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, view: Tensor, intrinsics: Tensor, side: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Centres, conics, depths and radii in the image."""
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
    covar = spread @ spread.mT + 0.3 * torch.eye(2)
    a, b, c = covar[:, 0, 0], covar[:, 0, 1], covar[:, 1, 1]
    area = a * c - b * b
    with torch.no_grad():
        extent = (2 * (255 * opacities).clamp(min=1).log()).sqrt()
        radius = (extent[:, None] * torch.stack([a, c], -1).sqrt()).ceil()
    return flat * focal + middle, torch.stack([c, -b, a], -1) / area[:, None], depth, radius


def step(way: Way, given: Sequence[Tensor], side: int) -> Callable[[], Sequence[Tensor]]:
    """Forward and backward in all that Gaussians have."""
    leaves = [tensor.clone().requires_grad_() for tensor in given[:5]]
    cotangent = torch.rand(side, side, 4, generator=torch.Generator().manual_seed(1))

    def run() -> Sequence[Tensor]:
        return torch.autograd.grad(way(*leaves, *given[5:], side=side), leaves, cotangent)

    return run


def way_of(name: str) -> Way:
    return by_tiles if name == "torch" else ours(name)


def taken(name: str, n: int, side: int) -> tuple[int, int]:
    """Bytes of inputs, and of inputs and step."""
    way = way_of(name)
    for _ in range(2):
        step(way, scene(500, 64), 64)()
    given = scene(n, side)
    size = sum(tensor.nbytes for tensor in given)
    run = step(way, given, side)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _of_status("VmRSS")
    run()
    return size, size + _of_status("VmHWM") - before


def _of_status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return 1024 * int(found[1])


def in_a_process(name: str, n: int, side: int) -> tuple[int, int]:
    """What is taken in a process that has done nothing else."""
    command = [sys.executable, str(Path(__file__)), name, str(n), str(side)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    size, total = done.stdout.split()[-2:]
    return int(size), int(total)


if __name__ == "__main__":
    torch.manual_seed(0)
    print(*taken(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
