"""The 2-D Gaussians: their parameters, initial values and rendering."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ...engines import get, init_quietly, list_running
from ...kernels import splat
from ...operation import op
from .._photo import Photo

NAMES = ("pos", "log_scale", "angle", "color", "logit")

Renderer = Callable[..., Tensor]
"""pos, scale, angle, color, opacity, h=, w= -> image (h, w, 3); see `tinsmith.reference.splat`."""

_SPEC = "pos[n, 2], scale[n, 2], angle[n], color[n, 3], opacity[n] -> image[h, w, 3]"
_LEAST_SCALE = 0.3  # pixels: a thinner Gaussian would fit between the pixels' centers and get no gradient
_EVERYWHERE = 0.05  # the part of the Gaussians that start at random places, not at details of the photograph
_START_SCALE = 0.45  # initial scale, as a part of the distance between neighbors
_START_OPACITY = 0.5


@dataclass(frozen=True)
class Gaussians:
    """The optimized parameters of n Gaussians. They are unbounded, so that Adam can set any value.

    pos        (n, 2), pixels
    log_scale  (n, 2): scale = 0.3 + exp(log_scale), pixels
    angle      (n), radians
    color     (n, 3), of any sign: Gaussians add up, and some subtract
    logit      (n): opacity = 1 / (1 + exp(-logit))
    """

    pos: Tensor
    log_scale: Tensor
    angle: Tensor
    color: Tensor
    logit: Tensor

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in NAMES}

    def activate(self) -> dict[str, Tensor]:
        """Return the parameters of `reference.splat`, computed from the unbounded ones: pos, scale, angle, color,
        opacity.
        """
        return {
            "pos": self.pos,
            "scale": _LEAST_SCALE + self.log_scale.exp(),
            "angle": self.angle,
            "color": self.color,
            "opacity": self.logit.sigmoid(),
        }


def list_shapes(count: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter of `count` Gaussians, by name."""
    return {"pos": (count, 2), "log_scale": (count, 2), "angle": (count,), "color": (count, 3), "logit": (count,)}


def scatter_gaussians(photo: Photo, count: int, seed: int) -> Gaussians:
    """Place Gaussians at random on the photograph's details, in its colors, as large as the gaps between them.

    This is the fit's only use of random numbers.
    """
    draw = torch.Generator().manual_seed(seed)
    pixels = photo.pixels.float() / 255
    density = _density(pixels)
    chosen = torch.multinomial(density, count, replacement=count > density.numel(), generator=draw)
    row, column = chosen // photo.width, chosen % photo.width
    gap = (count * density[chosen]).rsqrt()
    return Gaussians(
        pos=torch.stack([column, row], -1) + torch.rand(count, 2, generator=draw, dtype=pixels.dtype),
        log_scale=(_START_SCALE * gap).clamp(max=max(photo.height, photo.width)).log()[:, None].repeat(1, 2),
        angle=torch.rand(count, generator=draw, dtype=pixels.dtype) * math.pi,
        color=pixels[row, column].clone(),
        logit=torch.full((count,), math.log(_START_OPACITY / (1 - _START_OPACITY)), dtype=pixels.dtype),
    )


def _density(pixels: Tensor) -> Tensor:
    """Return a probability for each pixel (h w): mostly the smoothed gradient of the brightness, plus a small
    constant.
    """
    brightness = functional.pad(pixels.mean(-1)[None, None], (1, 1, 1, 1), mode="replicate")
    across = (brightness[..., 1:-1, 2:] - brightness[..., 1:-1, :-2]) / 2
    down = (brightness[..., 2:, 1:-1] - brightness[..., :-2, 1:-1]) / 2
    slope = functional.avg_pool2d(torch.hypot(across, down), 5, 1, 2, count_include_pad=False).flatten() + 1e-6
    return (1 - _EVERYWHERE) * slope / slope.sum() + _EVERYWHERE / slope.numel()


def make_renderer(engine: str, device: str) -> Renderer:
    """Build the splatting op for an engine; start the engine unless it already runs on that device."""
    if engine not in list_running() or get(engine).device_type() != device:
        init_quietly(device, engine)
    return op(_SPEC, adjoint="source")(splat(get(engine).lang, serial=device == "cpu"))
