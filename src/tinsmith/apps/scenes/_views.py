"""Views: pictures with transparency, and the cameras that took them. They come from `_built_in_scene` and `_dataset`.
An orbit is a camera's path around them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..._errors import InputError, nearest, refusal

BACKGROUNDS = {"white": (1.0, 1.0, 1.0), "black": (0.0, 0.0, 0.0)}
"""Colors by name."""


@dataclass(frozen=True)
class Views:
    """Pictures of one size, by k cameras.

    Attributes:
        names: the names of the pictures' files, relative to the dataset's folder.
        pictures: (k, rows, columns, 4) uint8, colors not multiplied by alpha.
        poses: (k, 4, 4) float64, from camera to world, in OpenGL's convention (-z forward, y up).
        intrinsics: (k, 3, 3) float64, in pixels; the center of the first pixel is at (0.5, 0.5).
    """

    names: tuple[str, ...]
    pictures: Tensor
    poses: Tensor
    intrinsics: Tensor

    def __len__(self) -> int:
        return len(self.names)

    def select(self, numbers: list[int]) -> Views:
        """Return the views with these numbers."""
        names = tuple(self.names[number] for number in numbers)
        return Views(names, self.pictures[numbers], self.poses[numbers], self.intrinsics[numbers])

    def sample_rays(self) -> tuple[Tensor, Tensor]:
        """Return origins and directions (n, 3) float64 of rays through 8 x 8 points of each picture."""
        shares = (torch.arange(8, dtype=torch.float64) + 0.5) / 8
        rows, columns = self.pictures.shape[1:3]
        v, u = torch.meshgrid(shares * rows, shares * columns, indexing="ij")
        places = torch.stack([u, v, torch.ones_like(u)], -1).view(1, -1, 3, 1)
        inside = (torch.linalg.inv(self.intrinsics)[:, None] @ places)[..., 0] * places.new_tensor([1, -1, -1])
        directions = inside @ self.poses[:, :3, :3].mT
        return self.poses[:, None, :3, 3].expand_as(directions).reshape(-1, 3), directions.reshape(-1, 3)

    def blend_with(self, background: Tensor) -> Tensor:
        """Blend the pictures with a background of one color: (k, rows, columns, 3) float32 from 0 to 1."""
        values = self.pictures.float() / 255
        return torch.lerp(background.expand_as(values[..., :3]), values[..., :3], values[..., 3:])


@dataclass(frozen=True)
class Points:
    """The known points of a scene: `positions` (p, 3) float64, `colors` (p, 3) uint8."""

    positions: Tensor
    colors: Tensor


NO_POINTS = Points(torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, 3, dtype=torch.uint8))


@dataclass(frozen=True)
class Dataset:
    """Training views and held-out views of one size. `digest` identifies their content without their names."""

    name: str
    train: Views
    test: Views
    digest: str
    points: Points = NO_POINTS

    @property
    def width(self) -> int:
        return self.train.pictures.shape[2]

    @property
    def height(self) -> int:
        return self.train.pictures.shape[1]

    @property
    def is_transparent(self) -> bool:
        """True if a pixel is transparent, so that the pictures can be blended with any background."""
        return bool((self.train.pictures[..., 3] < 255).any())


def make_dataset(name: str, train: Views, test: Views, points: Points = NO_POINTS) -> Dataset:
    """Build a dataset from views and points, with their digest."""
    digest = hashlib.sha256()
    for views in (train, test):
        for tensor in (views.pictures, *(matrices.round(decimals=6) for matrices in (views.poses, views.intrinsics))):
            digest.update(repr(tuple(tensor.shape)).encode() + tensor.contiguous().numpy().tobytes())
    if len(points.positions):
        digest.update(points.positions.numpy().tobytes() + points.colors.numpy().tobytes())
    return Dataset(name, train, test, digest.hexdigest(), points)


def require_background(name: str) -> None:
    """Raise InputError if there is no background of this name."""
    if name not in BACKGROUNDS:
        guess = nearest(name, list(BACKGROUNDS))
        rows = [("got", name), ("expected", ", ".join(BACKGROUNDS))]
        raise InputError(refusal("there is no such background", rows, f"Did you mean `{guess}`?" if guess else ""))


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
