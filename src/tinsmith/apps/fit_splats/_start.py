"""Initial Gaussians: at the points of a reconstruction, or in the visual hull of the pictures."""

from __future__ import annotations

import torch
from torch import Tensor

from ...render.captures import viewmat_of
from ..scenes import Dataset, Orbit

_BOX = 0.35  # half the side of the box that a scene without points is looked for in, in parts of the cameras' distance
_CANDIDATES = 30  # points in the box, for each Gaussian
_MOST_CANDIDATES = 2_000_000
_CLEAR = 0.05  # alpha below which a picture is seen through
_OPACITY = 0.3
_SPREAD = 0.7  # of the distance to the nearest Gaussians
_NEIGHBOURS = 3
_PAIRS = 1 << 24  # distances that are held at once
CONSTANT = 0.28209479177387814  # the spherical harmonic of degree 0


def first_gaussians(dataset: Dataset, count: int, degree: int, draw: torch.Generator) -> dict[str, Tensor]:
    """Parameters by name, float32, on the CPU."""
    means, colors = _places(dataset, count, draw)
    n = len(means)
    quats = torch.randn(n, 4, generator=draw)
    return {
        "means": means.float(),
        "scales": (_SPREAD * _spacing(means.float())).log()[:, None].repeat(1, 3),
        "quats": torch.nn.functional.normalize(quats, dim=1),
        "opacities": torch.full((n,), _OPACITY).logit(),
        "sh0": ((colors.float() - 0.5) / CONSTANT)[:, None],
        "shN": torch.zeros(n, (degree + 1) ** 2 - 1, 3),
    }


def _places(dataset: Dataset, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Positions (n, 3) and colors (n, 3) from 0 to 1, n at most `count`."""
    points = dataset.points
    if len(points.positions):
        chosen = torch.randperm(len(points.positions), generator=draw)[:count]
        return points.positions[chosen], points.colors[chosen].double() / 255
    orbit = Orbit.of(dataset.train)
    candidates = torch.rand(min(_CANDIDATES * count, _MOST_CANDIDATES), 3, generator=draw, dtype=torch.float64)
    candidates = (2 * candidates - 1) * _BOX * orbit.distance + orbit.middle
    colors, is_hidden = _carve_hull(dataset, candidates)
    kept = is_hidden.nonzero()[:count, 0] if is_hidden.any() else torch.arange(min(count, len(candidates)))
    return candidates[kept], colors[kept]


def _carve_hull(dataset: Dataset, points: Tensor) -> tuple[Tensor, Tensor]:
    """The mean color of points in the pictures, and whether no picture is seen through there: the visual hull."""
    views = dataset.train
    colors, times = torch.zeros_like(points), points.new_zeros(len(points), 1)
    is_hidden = torch.ones(len(points), dtype=torch.bool)
    for picture, viewmat, matrix in zip(views.pictures, viewmat_of(views.poses), views.intrinsics, strict=True):
        before = points @ viewmat[:3, :3].T + viewmat[:3, 3]
        places = before @ matrix.T
        column, row = (places[:, :2] / places[:, 2:].clamp(min=1e-9)).floor().long().unbind(1)
        inside = (before[:, 2] > 0) & (column >= 0) & (column < dataset.width) & (row >= 0) & (row < dataset.height)
        pixels = picture[row.clamp(0, dataset.height - 1), column.clamp(0, dataset.width - 1)].double() / 255
        is_hidden &= ~(inside & (pixels[:, 3] < _CLEAR))
        colors += pixels[:, :3] * inside[:, None]
        times += inside[:, None]
    return torch.where(times > 0, colors / times.clamp(min=1), 0.5), is_hidden


def _spacing(means: Tensor) -> Tensor:
    """(n), the mean distance of each to its nearest neighbours."""
    n = len(means)
    if n <= _NEIGHBOURS:
        return torch.full((n,), 0.1 * max(1.0, means.abs().max().item()))
    rows = max(1, _PAIRS // n)
    nearest = [torch.cdist(some, means).topk(_NEIGHBOURS + 1, largest=False).values for some in means.split(rows)]
    return torch.cat(nearest)[:, 1:].mean(1).clamp(min=1e-6)
