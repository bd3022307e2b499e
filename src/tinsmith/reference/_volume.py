"""The reference of direct volume rendering, in plain torch, with all samples of all rays at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MOST_SAMPLES = 65536
"""Most samples of a ray; a ray that would have more is sampled with longer steps."""


class Rendered(NamedTuple):
    """The result of rendering a volume or a field along rays.

    Attributes:
        color: (n, 3), or (n, c) for a field with c channels: the light that reaches the eye, including the background.
        opacity: (n), the fraction of the background that is hidden, 0 to 1. Rays that miss have 0.
        depth: (n), the sum of weight times t, not divided by the opacity; t is in units of `directions`.

    Example:
        >>> fog = torch.tensor([[1.0, 0.5, 0.0, 2.0]])  # one color for all values
        >>> ray = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> seen = ts.render.volume_render(torch.zeros(2, 2, 2), fog, *ray, [0, 0, 0, 1, 1, 1], step=0.1)
        >>> seen.opacity, seen.color
        (tensor([0.8647]), tensor([[0.8647, 0.4323, 0.0000]]))
    """

    color: Tensor
    opacity: Tensor
    depth: Tensor


class Shading(NamedTuple):
    """Blinn-Phong shading of the surfaces in a volume, by the formula in `volume_render`. Not differentiated.

    Attributes:
        light: the direction towards a light at infinity, of any length; None for a light at the eye.
        ambient: the fraction of the table's color that is visible without light, and where the volume is uniform.
        diffuse: the fraction of the table's color that is added if a surface faces the light.
        specular: the amount of white that is added if a surface reflects the light into the eye.
        shininess: the exponent of that highlight, 1 or more.
        softness: the gradient of the volume at which a surface is half visible, in values per longest side of the box.

    Example:
        >>> lamp = ts.render.Shading(light=(0.0, 0.0, 1.0), specular=0.5)
        >>> volume, table = torch.rand(8, 8, 8), torch.rand(4, 4)
        >>> rays = torch.rand(10, 3), torch.randn(10, 3)
        >>> ts.render.volume_render(volume, table, *rays, [0, 0, 0, 1, 1, 1], step=0.1, shading=lamp).color.shape
        torch.Size([10, 3])
    """

    light: tuple[float, float, float] | None = None
    ambient: float = 0.3
    diffuse: float = 0.7
    specular: float = 0.2
    shininess: float = 20.0
    softness: float = 0.01


def volume_render(
    volume: Tensor,
    table: Tensor,
    origins: Tensor,
    directions: Tensor,
    aabb: Tensor | Sequence[float],
    *,
    step: float,
    offsets: Tensor | None = None,
    shading: Shading | None = None,
    background: Tensor | None = None,
    threshold: float = 0.0,
) -> Rendered:
    """Render a volume with emission and absorption along rays, colored by a transfer function.

    The box is divided into x by y by z equal cells, and volume[i, j, k] is the value at the *center* of cell (i, j, k).
    Between centers, values are interpolated trilinearly; within half a cell of the box's faces they are those of the
    nearest centers. With `middle` a position in cells, 0 at the center of the first cell:

        middle = clamp((position - min) / (max - min) size - 1/2,  0,  size - 1)
        entry  = clamp(value, 0, 1) (k - 1)                     a row of the table; linear between rows

    A ray is within the box for t from `near` to `far` (near is 0 if it starts inside). This interval is divided into n
    equal samples, the smallest number with which none is longer than `step`:

        n = ceil(|d| (far - near) / step),  pace = (far - near) / n
        t = near + (i + offset) pace,  position = o + t d            i = 0 ... n - 1
        alpha = 1 - exp(-density |d| pace)
        weight = alpha (1 - opacity so far)                     0 once 1 - opacity is below `threshold`
        color = sum of weight color,  opacity = sum of weight,  depth = sum of weight t
        color = color + (1 - opacity) background

    With shading, g is the gradient by central differences of values one cell apart, per unit of length, m its softened
    length, v the direction towards the eye and l towards the light, both of length 1:

        m = sqrt(g.g + (softness / longest side)^2),  h = (l + v) / |l + v|
        color = color (ambient + diffuse |g.l| / m) + specular (|g.h| / m)^shininess

    Args:
        volume: (x, y, z), values, which the table maps from 0 to 1.
        table: (k, 4), rows of red, green, blue and density, per unit of length, not negative.
        origins: (n, 3), where rays start: o.
        directions: (n, 3), the directions d of rays, of any length but 0.
        aabb: (6), the box: min x, y, z, max x, y, z.
        step: the largest length of a sample, in the unit of positions.
        offsets: (n), where a ray is evaluated within its samples, 0 to 1; None for the middle, 0.5.
        shading: light on the surfaces in the volume; None for the table's colors without shading.
        background: (3) or (n, 3), the color behind the volume; None for black.
        threshold: a ray ends when its transmittance is below this.

    Returns:
        The color, opacity and depth of each ray, differentiable in volume, table, origins, directions and background.
        The number of samples, and where a ray ends, are not differentiated.

    Example:
        >>> fog = torch.tensor([[1.0, 0.5, 0.0, 2.0]])  # one color for all values
        >>> origin, towards = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> volume_render(torch.zeros(2, 2, 2), fog, origin, towards, [0, 0, 0, 1, 1, 1], step=0.1).opacity
        tensor([0.8647])
    """
    low, high = torch.as_tensor(aabb, dtype=volume.dtype, device=volume.device).view(2, 3)
    near, far, hit = _find_crossing(origins, directions, low, high)
    length = directions.norm(dim=-1)
    count = torch.where(hit, ((far - near) * length / step).detach().ceil().clamp(1, MOST_SAMPLES), 0.0)
    pace = (far - near) / count.clamp(min=1)
    index = torch.arange(int(count.max()) if len(count) else 0, dtype=volume.dtype, device=volume.device)
    t = near[:, None] + (index + (0.5 if offsets is None else offsets[:, None])) * pace[:, None]
    positions = origins[:, None] + t[..., None] * directions[:, None]
    size = torch.tensor(volume.shape, dtype=volume.dtype, device=volume.device)
    middle = torch.minimum(((positions - low) / (high - low) * size - 0.5).clamp(min=0), size - 1)
    entry = _look_up(table, _interpolate(volume, middle))
    color, density = entry[..., :3], entry[..., 3]
    if shading is not None:
        steep = _compute_differences(volume, middle) * size / (high - low)
        faint = shading.softness / (high - low).max()
        color = _shade(color, steep, faint, directions / length[:, None], shading)
    density = torch.where(index < count[:, None], density, 0.0)
    keep = torch.exp(-density * (pace * length)[:, None])
    left = torch.cat([torch.ones_like(keep[:, :1]), keep], dim=1).cumprod(dim=1)[:, :-1]  # before each sample
    weight = torch.where(left >= threshold, left * (1 - keep), 0.0)
    opacity = weight.sum(1)
    seen = (weight[..., None] * color).sum(1)
    if background is not None:
        seen = seen + (1 - opacity)[:, None] * background
    return Rendered(seen, opacity, (weight * t).sum(1))


def _find_crossing(origins: Tensor, directions: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute where rays enter and leave the box, and which rays hit it; t is 0 for those that miss."""
    is_parallel = directions == 0
    moving = torch.where(is_parallel, 1.0, directions)
    first, second = (low - origins) / moving, (high - origins) / moving
    enter = torch.where(is_parallel, -torch.inf, torch.minimum(first, second)).amax(-1).clamp(min=0)
    leave = torch.where(is_parallel, torch.inf, torch.maximum(first, second)).amin(-1)
    is_beside = (is_parallel & ((origins < low) | (origins > high))).any(-1)
    hit = (leave > enter) & ~is_beside & ~is_parallel.all(-1)
    return torch.where(hit, enter, 0.0), torch.where(hit, leave, 0.0), hit


def _interpolate(volume: Tensor, middle: Tensor) -> Tensor:
    """Interpolate the volume trilinearly at positions (..., 3) in cells, 0 at the center of the first cell."""
    cell = middle.detach().floor()
    part = middle - cell
    total = torch.zeros_like(middle[..., 0])
    for corner in itertools.product((0, 1), repeat=3):
        bits = torch.tensor(corner, device=middle.device)
        last = torch.tensor(volume.shape, device=middle.device) - 1
        i, j, k = torch.minimum(cell.long() + bits, last).unbind(-1)  # corners beyond the last cell have weight 0
        total = total + torch.where(bits == 1, part, 1 - part).prod(-1) * volume[i, j, k]
    return total


def _compute_differences(volume: Tensor, middle: Tensor) -> Tensor:
    """Compute central differences of the volume along each axis, per cell, (..., 3), at positions in cells."""
    last = torch.tensor(volume.shape, dtype=middle.dtype, device=middle.device) - 1
    differences: list[Tensor] = []
    for axis in torch.eye(3, dtype=middle.dtype, device=middle.device):
        above = torch.minimum(middle + axis, last)
        below = (middle - axis).clamp(min=0)
        differences.append((_interpolate(volume, above) - _interpolate(volume, below)) / 2)
    return torch.stack(differences, dim=-1)


def _look_up(table: Tensor, value: Tensor) -> Tensor:
    """Look up values in the transfer function's table, with linear interpolation between rows: (...) to (..., 4)."""
    entry = value.clamp(0, 1) * (len(table) - 1)
    row = entry.detach().floor().clamp(max=max(len(table) - 2, 0))
    part = (entry - row)[..., None]
    following = (row.long() + 1).clamp(max=len(table) - 1)
    return (1 - part) * table[row.long()] + part * table[following]


def _shade(color: Tensor, steep: Tensor, faint: Tensor, ahead: Tensor, shading: Shading) -> Tensor:
    """Compute the shaded colors of samples, (n, sample, 3), by Blinn-Phong shading.

    Args:
        color: (n, sample, 3), the table's colors.
        steep: (n, sample, 3), gradients of the volume.
        faint: the softness, in the units of `steep`.
        ahead: (n, 3), the rays' directions, of length 1.
        shading: the light.
    """
    normal = steep / (steep.square().sum(-1, keepdim=True) + faint * faint).sqrt()
    light = -ahead
    if shading.light is not None:
        light = torch.tensor(shading.light, dtype=color.dtype, device=color.device).expand_as(ahead)
        light = light / light.norm(dim=-1, keepdim=True)
    half = torch.nn.functional.normalize(light - ahead, dim=-1, eps=1e-6)
    facing = (normal * light[:, None]).sum(-1, keepdim=True).abs()
    mirroring = (normal * half[:, None]).sum(-1, keepdim=True).abs()
    lit = color * (shading.ambient + shading.diffuse * facing)
    return lit + shading.specular * mirroring.pow(shading.shininess)
