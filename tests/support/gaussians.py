"""Scenes of Gaussians for tests: some in view, some beside it, behind the camera, too near, too far, too faint."""

from __future__ import annotations

import torch
from torch import Tensor

NAMES = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks", "backgrounds")
WIDTH, HEIGHT = 40, 24


def make_scene(
    n: int = 24, cameras: int = 2, *, channels: int = 3, sh_degree: int | None = None, per_camera: bool = False
) -> dict[str, Tensor]:
    """Draw arguments of `rasterization` by name, in float64. `backgrounds` is of all channels."""
    double = torch.float64
    means = torch.randn(n, 3, dtype=double) * torch.tensor([0.9, 0.6, 1.0], dtype=double)
    means[::7, 2] -= 6.0  # behind
    scales = 0.03 + 0.25 * torch.rand(n, 3, dtype=double)
    opacities = 0.05 + 0.94 * torch.rand(n, dtype=double)
    opacities[::5] = 0.003  # fainter than 1 / 255
    last = (channels,) if sh_degree is None else ((sh_degree + 1) ** 2, channels)
    colors = torch.randn(*((cameras,) if per_camera else ()), n, *last, dtype=double)
    return {
        "means": means,
        "quats": torch.randn(n, 4, dtype=double),
        "scales": scales,
        "opacities": opacities,
        "colors": colors,
        "viewmats": torch.stack([_pose(0.25 * k) for k in range(cameras)]),
        "Ks": torch.stack([_intrinsics(25.0 + 3 * k) for k in range(cameras)]),
        "backgrounds": torch.rand(cameras, channels, dtype=double),
    }


def _pose(angle: float) -> Tensor:
    """Return a world-to-camera matrix: slightly to the side, 3 units off, not quite upright."""
    a = torch.tensor(angle, dtype=torch.float64)
    one, zero = torch.ones_like(a), torch.zeros_like(a)
    around = torch.stack([a.cos(), zero, a.sin(), zero, one, zero, -a.sin(), zero, a.cos()]).view(3, 3)
    b = a * 0.5 + 0.1
    rolled = torch.stack([b.cos(), -b.sin(), zero, b.sin(), b.cos(), zero, zero, zero, one]).view(3, 3)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = rolled @ around
    pose[:3, 3] = torch.tensor([0.1, -0.05, 3.0])
    return pose


def _intrinsics(focal: float) -> Tensor:
    rows = [[focal, 0.0, WIDTH / 2 + 0.7], [0.0, 1.1 * focal, HEIGHT / 2 - 0.4], [0.0, 0.0, 1.0]]
    return torch.tensor(rows, dtype=torch.float64)
