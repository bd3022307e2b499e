"""Orbits: a camera's path around a scene, computed from the cameras of its pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ._views import Views

_PULL = 1e-3  # regularizes towards the origin: parallel cameras do not determine a middle


@dataclass(frozen=True)
class Orbit:
    """A circle around `middle` (3), about the axis `up` (3), at the cameras' median distance and elevation."""

    middle: Tensor
    up: Tensor
    distance: float
    elevation: float

    @classmethod
    def from_views(cls, views: Views) -> Orbit:
        """Compute the orbit for views. The middle is the point nearest to all the lines along which the
        cameras look.
        """
        places, back = views.poses[:, :3, 3], views.poses[:, :3, 2]
        across = torch.eye(3, dtype=back.dtype) - back[:, :, None] * back[:, None, :]
        pull = _PULL * torch.eye(3, dtype=back.dtype)
        middle = torch.linalg.solve(across.mean(0) + pull, (across @ places[:, :, None]).mean(0)[:, 0])
        up = views.poses[:, :3, 1].mean(0)
        up = up / up.norm().clamp(min=1e-9) if up.norm() > 1e-3 else up.new_tensor([0.0, 0.0, 1.0])
        away = places - middle
        distance = away.norm(dim=1).clamp(min=1e-6)
        heights = ((away @ up) / distance).clamp(-1, 1).asin()
        return cls(middle, up, distance.median().item(), heights.median().item())

    def place(self, share: float) -> Tensor:
        """Return the camera's position (3) after a share of the round, from 0 to 1."""
        one, other = self._sides()
        angle = 2 * math.pi * share
        around = math.cos(angle) * one + math.sin(angle) * other
        return self.middle + self.distance * (math.cos(self.elevation) * around + math.sin(self.elevation) * self.up)

    def pose(self, share: float) -> Tensor:
        """Return the camera's pose (4, 4) after a share of the round, looking at the middle, in OpenGL's convention."""
        place = self.place(share)
        back = (place - self.middle) / self.distance
        right = torch.linalg.cross(self.up, back)
        right = right / right.norm() if right.norm() > 1e-6 else self._sides()[0]
        pose = torch.eye(4, dtype=place.dtype)
        pose[:3] = torch.stack([right, torch.linalg.cross(back, right), back, place], 1)
        return pose

    def _sides(self) -> tuple[Tensor, Tensor]:
        """Return two orthogonal unit vectors in the plane of the circle."""
        axis = torch.zeros_like(self.up)
        axis[self.up.abs().argmin()] = 1
        one = torch.linalg.cross(axis, self.up)
        one = one / one.norm()
        return one, torch.linalg.cross(self.up, one)
