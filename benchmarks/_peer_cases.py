"""What `peers.py` compares: the inputs of each kernel, and its reference in plain torch.

The functions of `TORCH` are as a careful user of torch writes them. In float64 they are what every way is checked with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from _blend import TILE, blend_by_tiles, sorted_gaussians

NAMES = ("saxpy", "compositing", "ragged", "splat", "blend", "march", "springs")
ABOUT = {
    "saxpy": "elements: z = 2.5 x + y",
    "compositing": "rays of 64 samples: the light along them",
    "ragged": "rays of 0 to 128 samples: the light along them",
    "splat": "round Gaussians added to an image of 256 x 218 pixels, 16 x 16 pixels each",
    "blend": "pixels: sorted Gaussians (12, 500, 2,000) front to back by tile lists, with an early stop",
    "march": "rays through a fog, a `while` of 31 to 82 steps that depends on data",
    "springs": "masses in a row, with springs between neighbors: one step",
}
"""What each kernel does, after the number of its elements."""
SIZES = ("small", "middle", "large")
COUNTS = {
    "saxpy": (1_000, 100_000, 10_000_000),
    "compositing": (64, 1_024, 8_192),
    "ragged": (64, 1_024, 8_192),
    "splat": (20, 200, 2_000),
    "blend": (256, 4_096, 16_384),
    "march": (512, 8_192, 65_536),
    "springs": (4_096, 65_536, 524_288),
}
"""The number of elements of each kernel, by size."""
REACH, H, W = 8, 218, 256
STEPS = 82
"""A march takes no more steps: t is 1.02^n - 1, and ends at 4."""


@dataclass(frozen=True)
class Way:
    """One way to run a kernel on given inputs.

    Attributes:
        forward: runs it, and returns results of the way's own kind.
        both: runs it and its reverse, and returns the gradients of all inputs of floats; None where there is none.
        tensors: makes tensors of what either returns; it is not timed.
    """

    forward: Callable[[], Any]
    both: Callable[[], Any] | None = None
    tensors: Callable[[Any], list[Tensor]] = field(default=lambda found: [*found])


@dataclass(frozen=True)
class Given:
    """A kernel's inputs, and the cotangents of its outputs."""

    name: str
    inputs: Sequence[Tensor]
    cotangents: Sequence[Tensor]
    side: int

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of outputs and other integers that follow from no input."""
        match self.name:
            case "splat":
                return {"reach": REACH, "h": H, "w": W}
            case "blend":
                return {"h": self.side, "w": self.side}
            case _:
                return {}


def given(name: str, size: str) -> Given:
    """Return random inputs of one kernel at one of the `SIZES`, the same in each run."""
    torch.manual_seed(0)
    count = COUNTS[name][SIZES.index(size)]
    inputs, side = _inputs(name, count), math.isqrt(count)
    with torch.no_grad():
        outputs = _tensors(TORCH[name](*inputs, **Given(name, inputs, (), side).sizes))
    return Given(name, inputs, [torch.randn_like(one) for one in outputs], side)


def _inputs(name: str, n: int) -> list[Tensor]:
    k = 64
    match name:
        case "saxpy":
            return [torch.rand(n) for _ in range(2)]
        case "compositing":
            return [torch.rand(n, k) * 2, torch.rand(n, k) * 0.05, torch.rand(n, k, 3)]
        case "ragged":
            counts = torch.randint(0, 2 * k + 1, (n,))
            s = int(counts.sum())
            rays = torch.stack([counts.cumsum(0) - counts, counts], 1).int()
            return [torch.rand(s) * 2, torch.rand(s) * 0.05, torch.rand(s, 3), rays]
        case "splat":
            return [torch.rand(n, 2) * 200, 0.05 + 0.1 * torch.rand(n), torch.rand(n, 3)]
        case "blend":
            side = math.isqrt(n)
            return [*sorted_gaussians(side == TILE, side, 2000 if side > 64 else 500)]
        case "march":
            return [torch.randn(n), torch.randn(n)]
        case _:
            return [torch.arange(n) * 1.01, torch.randn(n), torch.rand(n)]


def reference(at: Given) -> tuple[list[Tensor], list[Tensor]]:
    """Return outputs and gradients in float64."""
    leaves = [one.double().requires_grad_() if one.is_floating_point() else one for one in at.inputs]
    outputs = _tensors(TORCH[at.name](*leaves, **at.sizes))
    wanted = [one for one in leaves if one.requires_grad]
    gradients = torch.autograd.grad(outputs, wanted, [one.double() for one in at.cotangents])
    return [one.detach() for one in outputs], [*gradients]


def torch_way(at: Given, function: Callable[..., Any]) -> Way:
    """Build a way from a differentiable function of tensors: torch's own, or an op."""
    leaves = [one.clone().requires_grad_(one.is_floating_point()) for one in at.inputs]
    wanted = [one for one in leaves if one.requires_grad]

    def forward() -> list[Tensor]:
        with torch.no_grad():
            return _tensors(function(*at.inputs, **at.sizes))

    def both() -> Sequence[Tensor]:
        return torch.autograd.grad(_tensors(function(*leaves, **at.sizes)), wanted, at.cotangents)

    return Way(forward, both)


def _tensors(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [*result]


# Plain torch --------------------------------------------------------------------------------
def saxpy(x: Tensor, y: Tensor) -> Tensor:
    return torch.add(y, x, alpha=2.5)


def compositing(density: Tensor, step: Tensor, color: Tensor) -> Tensor:
    e = torch.exp(-density * step)
    through = torch.cat([torch.ones_like(e[:, :1]), e[:, :-1]], 1).cumprod(1)
    return ((through * (1 - e))[..., None] * color).sum(1)


def ragged(density: Tensor, step: Tensor, color: Tensor, rays: Tensor) -> Tensor:
    absorbed = density * step
    before = absorbed.double().cumsum(0) - absorbed  # over all rays, so a difference of two sums loses digits
    ray = torch.arange(len(rays)).repeat_interleave(rays[:, 1])
    start = rays[:, 0].long().clamp(max=len(density) - 1)
    through = torch.exp(before.index_select(0, start).index_select(0, ray) - before).to(absorbed.dtype)
    weights = through * (1 - torch.exp(-absorbed))
    return weights.new_zeros(len(rays), 3).index_add(0, ray, weights[:, None] * color)


def splat(place: Tensor, sharp: Tensor, color: Tensor, *, reach: int, h: int, w: int) -> Tensor:
    """Render all pixels of all squares at once in torch. Those outside of the image go to an extra row."""
    first = place.detach().int().long()
    y, x = (first[:, axis, None] + torch.arange(-reach, reach) for axis in (1, 0))
    dx, dy = x + 0.5 - place[:, 0, None], y + 0.5 - place[:, 1, None]
    alpha = torch.exp(-sharp[:, None, None] * (dx[:, None, :] ** 2 + dy[:, :, None] ** 2))
    is_inside = ((y >= 0) & (y < h))[:, :, None] & ((x >= 0) & (x < w))[:, None, :]
    index = torch.where(is_inside, y[:, :, None] * w + x[:, None, :], h * w)
    light = alpha[..., None] * color[:, None, None, :]
    image = light.new_zeros(h * w + 1, 3).index_add(0, index.flatten(), light.flatten(0, 2))
    return image[:-1].reshape(h, w, 3)


def march(start: Tensor, slope: Tensor) -> Tensor:
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


def springs(x: Tensor, v: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    pull = k[1:] * (x[1:] - x[:-1] - 1.0)
    force = torch.nn.functional.pad(pull, (0, 1)) - torch.nn.functional.pad(pull, (1, 0))
    speed = v + 0.01 * force
    return x + 0.01 * speed, speed


TORCH: dict[str, Callable[..., Any]] = {
    "saxpy": saxpy,
    "compositing": compositing,
    "ragged": ragged,
    "splat": splat,
    "blend": blend_by_tiles,
    "march": march,
    "springs": springs,
}


def compositing_by_channels(density: Tensor, step: Tensor, color: Tensor) -> Tensor:
    """Composite with a separate sum for each channel, along the axis with stride 1.

    With the channels last, Inductor for CPUs writes a parallel region for each ray (torch 2.13): a forward pass of
    8,192 rays took 540 ms, most of it for waking threads 8,192 times.
    """
    absorbed = density * step
    weights = torch.exp(absorbed - absorbed.cumsum(1)) * (1 - torch.exp(-absorbed))
    return torch.stack([(weights * one).sum(1) for one in color.unbind(2)], 1)


COMPILED: dict[str, Callable[..., Any]] = {
    "saxpy": saxpy,
    "compositing": compositing_by_channels,
    "splat": splat,
    "springs": springs,
}
"""What torch.compile takes whole: in the others sizes, or how often a loop runs, depend on data."""
