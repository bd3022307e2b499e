"""Solids for ray casting: exact intersections and normals, in the solid's coordinates. `_built_in_scene` places them.

A ray is o + t d, where d may have any length. Each solid returns the smallest t > 0 on its surface, and infinity for a
miss. All numbers are float64: the quartic equation of the torus needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_REAL = 1e-6  # a root with a smaller imaginary part counts as real
_POLISHES = 2  # steps of Newton's method


class Solid(Protocol):
    """A solid around the origin."""

    def intersect(self, origins: Tensor, directions: Tensor) -> Tensor:
        """Return the smallest t > 0 at which o + t d is on the surface, (n); infinity for a miss."""
        ...

    def normal(self, points: Tensor) -> Tensor:
        """Return the outward unit normals (n, 3) at points on the surface."""
        ...


@dataclass(frozen=True)
class Sphere:
    """The sphere |p| = radius."""

    radius: float

    def intersect(self, origins: Tensor, directions: Tensor) -> Tensor:
        return _select_nearest(_solve_quadratic(*_ball_equation(origins, directions, self.radius)))

    def normal(self, points: Tensor) -> Tensor:
        return points / self.radius


@dataclass(frozen=True)
class Box:
    """The box |x| <= half[0], |y| <= half[1], |z| <= half[2]."""

    half: tuple[float, float, float]

    def intersect(self, origins: Tensor, directions: Tensor) -> Tensor:
        half = origins.new_tensor(self.half)
        walls = torch.stack([(-half - origins) / directions, (half - origins) / directions])
        # 0 / 0: the ray is in a wall's plane, and this pair of walls does not bound it.
        near = walls.amin(0).nan_to_num(-math.inf, math.inf, -math.inf).amax(-1)
        far = walls.amax(0).nan_to_num(math.inf, math.inf, -math.inf).amin(-1)
        return _select_nearest(torch.where(near <= far, torch.stack([near, far]), math.inf))

    def normal(self, points: Tensor) -> Tensor:
        depth = points / points.new_tensor(self.half)
        face = depth.abs().argmax(-1, keepdim=True)
        return torch.zeros_like(points).scatter(-1, face, depth.gather(-1, face).sign())


@dataclass(frozen=True)
class Cylinder:
    """The closed cylinder x^2 + y^2 <= radius^2, |z| <= half, about the z axis."""

    radius: float
    half: float

    def intersect(self, origins: Tensor, directions: Tensor) -> Tensor:
        side = _solve_quadratic(*_ball_equation(origins[:, :2], directions[:, :2], self.radius))
        z, dz = origins[:, 2], directions[:, 2]
        side = torch.where((z + side * dz).abs() <= self.half, side, math.inf)
        ends = torch.stack([(self.half - z) / dz, (-self.half - z) / dz])
        away = (origins[:, :2] + ends[..., None] * directions[:, :2]).norm(dim=-1)
        return _select_nearest(torch.cat([side, torch.where(away <= self.radius, ends, math.inf)]))

    def normal(self, points: Tensor) -> Tensor:
        side = torch.cat([points[:, :2] / self.radius, torch.zeros_like(points[:, 2:])], -1)
        end = torch.zeros_like(points)
        end[:, 2] = points[:, 2].sign()
        on_side = points[:, :2].norm(dim=-1) / self.radius > points[:, 2].abs() / self.half
        return torch.where(on_side[:, None], side, end)


@dataclass(frozen=True)
class Torus:
    """The torus (sqrt(x^2 + y^2) - ring)^2 + z^2 = tube^2, about the z axis."""

    ring: float
    tube: float

    def intersect(self, origins: Tensor, directions: Tensor) -> Tensor:
        distances = torch.full_like(origins[:, 0], math.inf)
        around = _solve_quadratic(*_ball_equation(origins, directions, self.ring + self.tube))
        # All other rays miss the bounding ball.
        near = torch.isfinite(around).all(0).nonzero()[:, 0]
        if len(near):
            distances[near] = self._intersect_near(origins[near], directions[near], around[:, near].mean(0))
        return distances

    def _intersect_near(self, origins: Tensor, directions: Tensor, middle: Tensor) -> Tensor:
        """Intersect rays with the torus; return t (n). `middle` is the t of each ray's point nearest to the origin.

        The equation (|p|^2 + ring^2 - tube^2)^2 = 4 ring^2 (x^2 + y^2) is a polynomial in t with the leading
        coefficient 1. It is solved in terms of the distance from `middle`.
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
        t = _solve_quartic(torch.stack([c3, c2, c1, c0], -1)) / speed[:, None] + middle[:, None]
        return _select_nearest(t.T)

    def normal(self, points: Tensor) -> Tensor:
        flat = points[:, :2]
        inward = self.ring * flat / flat.norm(dim=-1, keepdim=True)
        return (points - torch.cat([inward, torch.zeros_like(points[:, 2:])], -1)) / self.tube


def _ball_equation(origins: Tensor, directions: Tensor, radius: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return a, b, c of the equation a t^2 + 2 b t + c = 0 for a ray's intersections with a sphere around the
    origin.
    """
    dot = (origins * directions).sum(-1)
    return directions.square().sum(-1), dot, origins.square().sum(-1) - radius**2


def _solve_quadratic(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return the two roots of a t^2 + 2 b t + c, (2, n); infinity if there are none."""
    inside = b**2 - a * c
    root = inside.clamp(min=0).sqrt()
    there = (inside > 0) & (a > 0)
    return torch.where(there, torch.stack([-b - root, -b + root]) / a, math.inf)


def _solve_quartic(coefficients: Tensor) -> Tensor:
    """Return the real roots (n, 4) of t^4 + c3 t^3 + c2 t^2 + c1 t + c0, from the coefficients (n, 4); infinity for
    complex ones.
    """
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


def _select_nearest(t: Tensor) -> Tensor:
    """Return the smallest positive t, (n), of (k, n); infinity if there is none."""
    return torch.where(t > 0, t, math.inf).amin(0)
