"""Solids that rays meet: exact crossings and normals, in the solid's coordinates. Where it stands: `_built_in_scene`.

A ray is o + t d, of any length of d. Each solid gives the smallest t > 0 on its surface, and infinity for a miss.
All of it is float64: the quartic of the torus needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_REAL = 1e-6  # imaginary part, in units of the torus, below which a root is real
_POLISHES = 2  # steps of Newton's method


class Solid(Protocol):
    """A solid about the origin."""

    def crossing(self, origins: Tensor, directions: Tensor) -> Tensor:
        """(n): the smallest t > 0 where o + t d is on the surface; infinity for a miss."""
        ...

    def normal(self, points: Tensor) -> Tensor:
        """(n, 3): unit normals, outwards, of points on the surface."""
        ...


@dataclass(frozen=True)
class Sphere:
    """|p| = radius."""

    radius: float

    def crossing(self, origins: Tensor, directions: Tensor) -> Tensor:
        return _nearest(_quadratic(*_ball(origins, directions, self.radius)))

    def normal(self, points: Tensor) -> Tensor:
        return points / self.radius


@dataclass(frozen=True)
class Box:
    """|x| <= half[0] and so on."""

    half: tuple[float, float, float]

    def crossing(self, origins: Tensor, directions: Tensor) -> Tensor:
        half = origins.new_tensor(self.half)
        walls = torch.stack([(-half - origins) / directions, (half - origins) / directions])
        # 0 / 0 is a ray within a wall's plane, which that pair of walls does not bound.
        near = walls.amin(0).nan_to_num(-math.inf, math.inf, -math.inf).amax(-1)
        far = walls.amax(0).nan_to_num(math.inf, math.inf, -math.inf).amin(-1)
        return _nearest(torch.where(near <= far, torch.stack([near, far]), math.inf))

    def normal(self, points: Tensor) -> Tensor:
        depth = points / points.new_tensor(self.half)
        face = depth.abs().argmax(-1, keepdim=True)
        return torch.zeros_like(points).scatter(-1, face, depth.gather(-1, face).sign())


@dataclass(frozen=True)
class Cylinder:
    """x^2 + y^2 <= radius^2 and |z| <= half: about the z axis, closed."""

    radius: float
    half: float

    def crossing(self, origins: Tensor, directions: Tensor) -> Tensor:
        side = _quadratic(*_ball(origins[:, :2], directions[:, :2], self.radius))
        z, dz = origins[:, 2], directions[:, 2]
        side = torch.where((z + side * dz).abs() <= self.half, side, math.inf)
        ends = torch.stack([(self.half - z) / dz, (-self.half - z) / dz])
        away = (origins[:, :2] + ends[..., None] * directions[:, :2]).norm(dim=-1)
        return _nearest(torch.cat([side, torch.where(away <= self.radius, ends, math.inf)]))

    def normal(self, points: Tensor) -> Tensor:
        side = torch.cat([points[:, :2] / self.radius, torch.zeros_like(points[:, 2:])], -1)
        end = torch.zeros_like(points)
        end[:, 2] = points[:, 2].sign()
        on_side = points[:, :2].norm(dim=-1) / self.radius > points[:, 2].abs() / self.half
        return torch.where(on_side[:, None], side, end)


@dataclass(frozen=True)
class Torus:
    """(sqrt(x^2 + y^2) - ring)^2 + z^2 = tube^2: about the z axis."""

    ring: float
    tube: float

    def crossing(self, origins: Tensor, directions: Tensor) -> Tensor:
        distances = torch.full_like(origins[:, 0], math.inf)
        around = _quadratic(*_ball(origins, directions, self.ring + self.tube))
        # All other rays miss the bounding ball.
        near = torch.isfinite(around).all(0).nonzero()[:, 0]
        if len(near):
            distances[near] = self._among(origins[near], directions[near], around[:, near].mean(0))
        return distances

    def _among(self, origins: Tensor, directions: Tensor, middle: Tensor) -> Tensor:
        """Crossings of rays; `middle`: t where each is closest to the origin, from where its quartic is solved.

        With |p|^2 + ring^2 - tube^2 squared = 4 ring^2 (x^2 + y^2), a polynomial in t with the leading term 1.
        """
        speed = directions.norm(dim=-1)
        d = directions / speed[:, None]
        o = origins + middle[:, None] * directions
        k, four = o.square().sum(-1) + self.ring**2 - self.tube**2, 4 * self.ring**2
        a, ox, dx = (o * d).sum(-1), o[:, :2], d[:, :2]
        c3 = 4 * a
        c2 = 4 * a**2 + 2 * k - four * dx.square().sum(-1)
        c1 = 4 * a * k - 2 * four * (ox * dx).sum(-1)
        c0 = k**2 - four * ox.square().sum(-1)
        t = _quartic(torch.stack([c3, c2, c1, c0], -1)) / speed[:, None] + middle[:, None]
        return _nearest(t.T)

    def normal(self, points: Tensor) -> Tensor:
        flat = points[:, :2]
        inward = self.ring * flat / flat.norm(dim=-1, keepdim=True)
        return (points - torch.cat([inward, torch.zeros_like(points[:, 2:])], -1)) / self.tube


def _ball(origins: Tensor, directions: Tensor, radius: float) -> tuple[Tensor, Tensor, Tensor]:
    """a, b, c of a t^2 + 2 b t + c = 0, where a ray is at `radius` from the origin."""
    dot = (origins * directions).sum(-1)
    return directions.square().sum(-1), dot, origins.square().sum(-1) - radius**2


def _quadratic(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """(2, n): the roots of a t^2 + 2 b t + c, infinite where there are none."""
    inside = b**2 - a * c
    root = inside.clamp(min=0).sqrt()
    there = (inside > 0) & (a > 0)
    return torch.where(there, torch.stack([-b - root, -b + root]) / a, math.inf)


def _quartic(coefficients: Tensor) -> Tensor:
    """(n, 4): real roots of t^4 + c3 t^3 + c2 t^2 + c1 t + c0, from (n, 4) of these; infinite where complex."""
    companion = torch.diag_embed(torch.ones_like(coefficients[:, 1:]), -1)
    companion[:, 0] = -coefficients
    roots = torch.linalg.eigvals(companion)
    t = roots.real
    c3, c2, c1, c0 = coefficients.unsqueeze(-1).unbind(1)
    for _ in range(_POLISHES):
        value = (((t + c3) * t + c2) * t + c1) * t + c0
        slope = ((4 * t + 3 * c3) * t + 2 * c2) * t + c1
        t = t - torch.where(slope.abs() > _REAL, value / slope, 0)
    return torch.where(roots.imag.abs() < _REAL, t, math.inf)


def _nearest(t: Tensor) -> Tensor:
    """(n): the smallest of (k, n) that is in front."""
    return torch.where(t > 0, t, math.inf).amin(0)
