"""Views: pictures with transparency, and the cameras that took them. They come from `_built_in_scene` and
`_dataset`.
"""

from __future__ import annotations

import hashlib
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
