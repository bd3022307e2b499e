"""Direct volume rendering: light through a box of values, in plain torch, every sample of every ray at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MOST_SAMPLES = 65536
"""Of a ray: one with more is sampled in longer steps."""


class Rendered(NamedTuple):
    """The result of rendering a volume or a field along rays.

    Attributes:
        colour: (n, 3), or (n, c) for a field with c channels: the light that reaches the eye, including the background.
        opacity: (n), the part of the background that is hidden, 0 to 1. Rays that miss have 0.
        depth: (n), sum of weight t over the samples, not divided by opacity; t is in units of `directions`.

    Example:
        >>> fog = torch.tensor([[1.0, 0.5, 0.0, 2.0]])  # of one colour, whatever the value
        >>> ray = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> seen = ts.render.volume_render(torch.zeros(2, 2, 2), fog, *ray, [0, 0, 0, 1, 1, 1], step=0.1)
        >>> seen.opacity, seen.colour
        (tensor([0.8647]), tensor([[0.8647, 0.4323, 0.0000]]))
    """

    colour: Tensor
    opacity: Tensor
    depth: Tensor


class Shading(NamedTuple):
    """Blinn and Phong's light on the surfaces in a volume: see `volume_render` for the formula. Not differentiated.

    Attributes:
        light: the direction towards a light far away, of any length; None for a light at the eye.
        ambient: the part of the table's colour that is seen without light, and where the volume is uniform.
        diffuse: the part of the table's colour that is seen where a surface faces the light.
        specular: the white light that a surface adds where it reflects the light into the eye.
        shininess: exponent of that highlight, 1 or more.
        softness: the slope of the volume at which a surface is half visible, in values per longest side of the box.

    Example:
        >>> lamp = ts.render.Shading(light=(0.0, 0.0, 1.0), specular=0.5)
        >>> volume, table = torch.rand(8, 8, 8), torch.rand(4, 4)
        >>> rays = torch.rand(10, 3), torch.randn(10, 3)
        >>> ts.render.volume_render(volume, table, *rays, [0, 0, 0, 1, 1, 1], step=0.1, shading=lamp).colour.shape
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
    """Emission and absorption along rays through a volume, coloured by a transfer function.

    The box is cut into x by y by z equal cells, and volume[i, j, k] is the value at the *middle* of cell (i, j, k);
    between middles values are trilinear, and within half a cell of the box's faces those of the nearest middles.
    In the letters used below, with `middle` counted in cells, 0 at the first cell's:

        middle = clamp((position - min) / (max - min) size - 1/2,  0,  size - 1)
        entry  = clamp(value, 0, 1) (k - 1)                     a row of the table; linear between rows

    A ray is within the box for t from `near` to `far` (near is 0 if it starts inside). That stretch is cut into n
    equal samples, as few as are no longer than `step`:

        n = ceil(|d| (far - near) / step),  pace = (far - near) / n
        t = near + (i + offset) pace,  position = o + t d            i = 0 ... n - 1
        alpha = 1 - exp(-density |d| pace)
        weight = alpha (1 - opacity so far)                     0 from where that is below `threshold`
        colour = sum of weight colour,  opacity = sum of weight,  depth = sum of weight t
        colour = colour + (1 - opacity) background

    With shading, g being the differences of the values a cell to either side, per length, m its length made soft,
    v towards the eye and l towards the light, both of length one:

        m = sqrt(g.g + (softness / longest side)^2),  h = (l + v) / |l + v|
        colour = colour (ambient + diffuse |g.l| / m) + specular (|g.h| / m)^shininess

    Args:
        volume: (x, y, z), values; the table is for those from 0 to 1.
        table: (k, 4), rows of red, green, blue and density per length, not negative.
        origins: (n, 3), where rays start: o.
        directions: (n, 3), where they go: d, of any length but 0.
        aabb: (6), the box: min x, y, z, max x, y, z.
        step: the longest sample, in the lengths that positions are in.
        offsets: (n), where in each of its samples a ray looks, 0 to 1; None for the middle, 0.5.
        shading: None for the table's colours as they are.
        background: (3) or (n, 3), behind the volume; None for black.
        threshold: a ray ends when less than this is left of its light.

    Returns:
        The colour, opacity and depth of each ray, differentiable in volume, table, origins, directions and background.
        How many samples there are, and where a ray ends, is not differentiated.

    Example:
        >>> fog = torch.tensor([[1.0, 0.5, 0.0, 2.0]])  # of one colour, whatever the value
        >>> origin, towards = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> volume_render(torch.zeros(2, 2, 2), fog, origin, towards, [0, 0, 0, 1, 1, 1], step=0.1).opacity
        tensor([0.8647])
    """
    low, high = torch.as_tensor(aabb, dtype=volume.dtype, device=volume.device).view(2, 3)
    near, far, hit = _crossing(origins, directions, low, high)
    length = directions.norm(dim=-1)
    count = torch.where(hit, ((far - near) * length / step).detach().ceil().clamp(1, MOST_SAMPLES), 0.0)
    pace = (far - near) / count.clamp(min=1)
    index = torch.arange(int(count.max()) if len(count) else 0, dtype=volume.dtype, device=volume.device)
    t = near[:, None] + (index + (0.5 if offsets is None else offsets[:, None])) * pace[:, None]
    positions = origins[:, None] + t[..., None] * directions[:, None]
    size = torch.tensor(volume.shape, dtype=volume.dtype, device=volume.device)
    middle = torch.minimum(((positions - low) / (high - low) * size - 0.5).clamp(min=0), size - 1)
    entry = _look_up(table, _interpolate(volume, middle))
    colour, density = entry[..., :3], entry[..., 3]
    if shading is not None:
        steep = _differences(volume, middle) * size / (high - low)
        faint = shading.softness / (high - low).max()
        colour = _shade(colour, steep, faint, directions / length[:, None], shading)
    density = torch.where(index < count[:, None], density, 0.0)
    keep = torch.exp(-density * (pace * length)[:, None])
    left = torch.cat([torch.ones_like(keep[:, :1]), keep], dim=1).cumprod(dim=1)[:, :-1]  # before each sample
    weight = torch.where(left >= threshold, left * (1 - keep), 0.0)
    opacity = weight.sum(1)
    seen = (weight[..., None] * colour).sum(1)
    if background is not None:
        seen = seen + (1 - opacity)[:, None] * background
    return Rendered(seen, opacity, (weight * t).sum(1))


def _crossing(origins: Tensor, directions: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From which t to which t rays are in the box, and which are at all. Others go from 0 to 0."""
    is_parallel = directions == 0
    moving = torch.where(is_parallel, 1.0, directions)
    first, second = (low - origins) / moving, (high - origins) / moving
    enter = torch.where(is_parallel, -torch.inf, torch.minimum(first, second)).amax(-1).clamp(min=0)
    leave = torch.where(is_parallel, torch.inf, torch.maximum(first, second)).amin(-1)
    is_beside = (is_parallel & ((origins < low) | (origins > high))).any(-1)
    hit = (leave > enter) & ~is_beside & ~is_parallel.all(-1)
    return torch.where(hit, enter, 0.0), torch.where(hit, leave, 0.0), hit


def _interpolate(volume: Tensor, middle: Tensor) -> Tensor:
    """The value at positions counted in cells from the first cell's middle, (..., 3)."""
    cell = middle.detach().floor()
    part = middle - cell
    total = torch.zeros_like(middle[..., 0])
    for corner in itertools.product((0, 1), repeat=3):
        bits = torch.tensor(corner, device=middle.device)
        last = torch.tensor(volume.shape, device=middle.device) - 1
        i, j, k = torch.minimum(cell.long() + bits, last).unbind(-1)  # what is beyond the last has no weight
        total = total + torch.where(bits == 1, part, 1 - part).prod(-1) * volume[i, j, k]
    return total


def _differences(volume: Tensor, middle: Tensor) -> Tensor:
    """How the value grows along each axis, a cell: half the difference of the values a cell to either side."""
    last = torch.tensor(volume.shape, dtype=middle.dtype, device=middle.device) - 1
    differences: list[Tensor] = []
    for axis in torch.eye(3, dtype=middle.dtype, device=middle.device):
        above = torch.minimum(middle + axis, last)
        below = (middle - axis).clamp(min=0)
        differences.append((_interpolate(volume, above) - _interpolate(volume, below)) / 2)
    return torch.stack(differences, dim=-1)


def _look_up(table: Tensor, value: Tensor) -> Tensor:
    """The table's row for values, linear between rows."""
    entry = value.clamp(0, 1) * (len(table) - 1)
    row = entry.detach().floor().clamp(max=max(len(table) - 2, 0))
    part = (entry - row)[..., None]
    following = (row.long() + 1).clamp(max=len(table) - 1)
    return (1 - part) * table[row.long()] + part * table[following]


def _shade(colour: Tensor, steep: Tensor, faint: Tensor, ahead: Tensor, shading: Shading) -> Tensor:
    """The colour of samples (n, sample, 3) in the light; `ahead` (n, 3) are the rays' directions, of length one."""
    normal = steep / (steep.square().sum(-1, keepdim=True) + faint * faint).sqrt()
    light = -ahead
    if shading.light is not None:
        light = torch.tensor(shading.light, dtype=colour.dtype, device=colour.device).expand_as(ahead)
        light = light / light.norm(dim=-1, keepdim=True)
    half = torch.nn.functional.normalize(light - ahead, dim=-1, eps=1e-6)
    facing = (normal * light[:, None]).sum(-1, keepdim=True).abs()
    mirroring = (normal * half[:, None]).sum(-1, keepdim=True).abs()
    lit = colour * (shading.ambient + shading.diffuse * facing)
    return lit + shading.specular * mirroring.pow(shading.shininess)
