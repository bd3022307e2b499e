"""The built-in scene: solids with color, texture and shading, seen from a hemisphere of cameras.

It is rendered by ray casting: intersections are exact, and a pixel is the mean of `_SUBRAYS` x `_SUBRAYS` rays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .._cost import Cost
from ._solids import Box, Cylinder, Solid, Sphere, Torus
from ._views import Dataset, Views, make_dataset

NAME = "own scene"

_TRAIN_VIEWS = 60
_TEST_VIEWS = 10
_SUBRAYS = 3
_DISTANCE = 3.8
_ANGLE = math.radians(45)  # of the field of view
_LOOKED_AT = (0.0, 0.0, -0.15)
_TRAIN_ELEVATIONS = (4, 74)  # degrees
_TEST_ELEVATIONS = (12, 48)

_LIGHT = (0.5, -0.35, 0.8)  # the direction towards the light
_AMBIENT, _DIFFUSE, _SPECULAR, _SHININESS = 0.35, 0.65, 0.25, 24
_AWAY = 1e-6  # the distance from the surface at which a shadow's ray starts

Paint = Callable[[Tensor], Tensor]
"""Maps points on a solid, (n, 3) in its coordinates, to colors."""


@dataclass(frozen=True)
class Placed:
    """A solid in the world: rotated by `turn` (degrees about x, then z), then moved to `at`, and painted."""

    solid: Solid
    at: tuple[float, float, float]
    paint: Paint
    turn: tuple[float, float] = (0, 0)

    @cached_property
    def rotation(self) -> Tensor:
        """The rotation (3, 3) from the solid's coordinates to the world's."""
        x, z = (math.radians(angle) for angle in self.turn)
        about_x = torch.tensor(
            [[1, 0, 0], [0, math.cos(x), -math.sin(x)], [0, math.sin(x), math.cos(x)]], dtype=torch.float64
        )
        about_z = torch.tensor(
            [[math.cos(z), -math.sin(z), 0], [math.sin(z), math.cos(z), 0], [0, 0, 1]], dtype=torch.float64
        )
        return about_z @ about_x

    def to_local(self, points: Tensor) -> Tensor:
        """Convert points in the world to the solid's coordinates."""
        return (points - points.new_tensor(self.at)) @ self.rotation

    def intersect(self, origins: Tensor, directions: Tensor) -> Tensor:
        """Return where rays in the world first meet the solid, like `Solid.intersect`."""
        return self.solid.intersect(self.to_local(origins), directions @ self.rotation)


def _paint_plain(*color: float) -> Paint:
    return lambda points: points.new_tensor(color).expand_as(points)


def _paint_either(which: Callable[[Tensor], Tensor], one: tuple[float, ...], other: tuple[float, ...]) -> Paint:
    def paint(points: Tensor) -> Tensor:
        return torch.where(which(points)[:, None], points.new_tensor(one), points.new_tensor(other))

    return paint


def _is_odd(*numbers: Tensor) -> Tensor:
    return torch.stack([number.floor() for number in numbers]).sum(0).remainder(2) > 0.5


def _select_checks(size: float) -> Callable[[Tensor], Tensor]:
    return lambda points: _is_odd(points[:, 0] / size, points[:, 1] / size)


def _select_patches(around: int, down: int) -> Callable[[Tensor], Tensor]:
    """Return a predicate that colors points on a sphere in two colors, alternating between meridians and parallels."""

    def which(points: Tensor) -> Tensor:
        longitude = torch.atan2(points[:, 1], points[:, 0]) / (2 * math.pi)
        latitude = torch.acos((points[:, 2] / points.norm(dim=-1)).clamp(-1, 1)) / math.pi
        return _is_odd(longitude * around, latitude * down)

    return which


def _select_stripes(axis: int, width: float) -> Callable[[Tensor], Tensor]:
    return lambda points: _is_odd(points[:, axis] / width + 0.5)


SOLIDS = (
    Placed(
        Cylinder(1.3, 0.05), (0, 0, -0.55), _paint_either(_select_checks(0.4), (0.93, 0.9, 0.84), (0.45, 0.5, 0.56))
    ),
    Placed(
        Sphere(0.42), (-0.5, 0.42, -0.08), _paint_either(_select_patches(8, 6), (0.9, 0.22, 0.16), (0.98, 0.9, 0.8))
    ),
    Placed(
        Box((0.33, 0.33, 0.42)),
        (0.55, 0.45, -0.08),
        _paint_either(_select_stripes(2, 0.21), (0.12, 0.36, 0.7), (0.95, 0.78, 0.2)),
        (0, 25),
    ),
    Placed(Torus(0.36, 0.14), (-0.38, -0.58, -0.22), _paint_plain(0.16, 0.62, 0.36), (52, -30)),
    Placed(
        Cylinder(0.2, 0.32),
        (0.5, -0.5, -0.18),
        _paint_either(_select_stripes(2, 0.16), (0.62, 0.3, 0.66), (0.9, 0.7, 0.88)),
        (0, 0),
    ),
)


def render_own_scene(size: int) -> Dataset:
    """Render the built-in scene: pictures of `size` x `size`, for training and for tests. The result is always the
    same.
    """
    train, test = _views("train", _place_training_poses(), size), _views("test", _place_test_poses(), size)
    return make_dataset(NAME, train, test)


def estimate_own_scene_cost(size: int) -> Cost:
    """Return a lower bound of `render_own_scene`'s cost: all pictures in 8 bits, and the rays of one in float64."""
    pixels, views = float(size) ** 2, _TRAIN_VIEWS + _TEST_VIEWS
    origins_and_directions = 2 * 3 * 8
    return Cost(pixels * (views * 4 + _SUBRAYS**2 * origins_and_directions), pixels * views * 1e-6)


def _views(part: str, poses: Tensor, size: int) -> Views:
    focal = size / 2 / math.tan(_ANGLE / 2)
    intrinsics = torch.tensor([[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1]], dtype=torch.float64)
    pictures = torch.stack([render_picture(pose, focal, (size, size)) for pose in poses])
    names = tuple(f"{part}/{number:03}.png" for number in range(len(poses)))
    return Views(names, pictures, poses, intrinsics.expand(len(poses), 3, 3))


def _place_training_poses() -> Tensor:
    """Return the camera poses for training: a spiral of equal areas over the hemisphere."""
    low, high = (math.sin(math.radians(angle)) for angle in _TRAIN_ELEVATIONS)
    golden = math.pi * (3 - math.sqrt(5))
    heights = [low + (high - low) * (number + 0.5) / _TRAIN_VIEWS for number in range(_TRAIN_VIEWS)]
    return torch.stack([make_pose(number * golden, math.asin(height)) for number, height in enumerate(heights)])


def _place_test_poses() -> Tensor:
    """Return the camera poses for tests: one round about the scene, moving up and down."""
    low, high = (math.radians(angle) for angle in _TEST_ELEVATIONS)

    def at(share: float) -> Tensor:
        return make_pose(2 * math.pi * share + 0.1, low + (high - low) * (0.5 + 0.5 * math.sin(4 * math.pi * share)))

    return torch.stack([at(number / _TEST_VIEWS) for number in range(_TEST_VIEWS)])


def make_pose(azimuth: float, elevation: float, distance: float = _DISTANCE) -> Tensor:
    """Return the pose (4, 4) of a camera that looks at the middle of the scene, in OpenGL's convention (-z forward, y
    up).
    """
    flat = math.cos(elevation)
    back = torch.tensor([flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation)], dtype=torch.float64)
    right = torch.tensor([-math.sin(azimuth), math.cos(azimuth), 0], dtype=torch.float64)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = torch.stack([right, torch.linalg.cross(back, right), back], 1)
    pose[:3, 3] = back * distance + back.new_tensor(_LOOKED_AT)
    return pose


def render_picture(pose: Tensor, focal: float, size: tuple[int, int]) -> Tensor:
    """Render a camera's picture, (rows, columns, 4) uint8, colors not multiplied by alpha. `size` is (width,
    height).
    """
    mean = cast_rays(*_subrays(pose, focal, size)).view(_SUBRAYS**2, -1, 4).mean(0)
    alpha = mean[:, 3:]
    straight = torch.cat([mean[:, :3] / alpha.clamp(min=1e-9), alpha], -1)
    return (straight * 255).round().clamp(0, 255).to(torch.uint8).view(size[1], size[0], 4)


def _subrays(pose: Tensor, focal: float, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return origins and directions of the rays through the first subpixel of all pixels, then through the next, and so
    on.
    """
    shares = (torch.arange(_SUBRAYS, dtype=torch.float64) + 0.5) / _SUBRAYS
    columns, rows = (torch.arange(side, dtype=torch.float64) - side / 2 for side in size)
    dy, dx, y, x = torch.meshgrid(shares, shares, rows, columns, indexing="ij")
    inside = torch.stack([x + dx, -y - dy, torch.full_like(x, -focal)], -1).view(-1, 3)
    directions = inside @ pose[:3, :3].T
    return pose[:3, 3].expand_as(directions), directions / directions.norm(dim=-1, keepdim=True)


def cast_rays(origins: Tensor, directions: Tensor) -> Tensor:
    """Return what rays see, (n, 4): colors multiplied by alpha, which is 1 for a solid and 0 for a miss."""
    t, number = torch.stack([placed.intersect(origins, directions) for placed in SOLIDS]).min(0)
    seen = torch.zeros(len(origins), 4, dtype=origins.dtype)
    for which, placed in enumerate(SOLIDS):
        met = (torch.isfinite(t) & (number == which)).nonzero()[:, 0]
        if len(met):
            points = origins[met] + t[met, None] * directions[met]
            seen[met] = torch.cat([_shade(placed, points, directions[met]), torch.ones(len(met), 1)], -1)
    return seen


def _shade(placed: Placed, points: Tensor, directions: Tensor) -> Tensor:
    """Compute the colors (n, 3) of points on a solid by the Blinn-Phong model with shadows. `directions` have
    length 1.
    """
    own = placed.to_local(points)
    normal = placed.solid.normal(own) @ placed.rotation.T
    light = points.new_tensor(_LIGHT) / math.hypot(*_LIGHT)
    from_there = (points + _AWAY * normal, light.expand_as(points))
    lit = torch.stack([torch.isinf(other.intersect(*from_there)) for other in SOLIDS]).all(0)
    halfway = light - directions
    halfway = halfway / halfway.norm(dim=-1, keepdim=True)
    diffuse = (normal @ light).clamp(min=0) * lit
    specular = (normal * halfway).sum(-1).clamp(min=0) ** _SHININESS * lit
    color = placed.paint(own) * (_AMBIENT + _DIFFUSE * diffuse)[:, None] + _SPECULAR * specular[:, None]
    return color.clamp(0, 1)
