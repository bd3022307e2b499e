"""Captures: the pictures of a scene and the cameras that took them, as tensors and paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..._extras import require_packages
from ._frames import Frame

_SIDEWAYS = (5, 6, 7, 8)  # EXIF's orientations that swap width and height
_ORIENTATION = 0x0112  # EXIF's number of it


@dataclass(frozen=True)
class Capture:
    """Pictures of a scene by c cameras, and known points of it.

    Attributes:
        images: c paths of the pictures.
        viewmats: (c, 4, 4) float64, world to camera, x right, y down, z ahead: as `gaussians.rasterization` takes them.
        Ks: (c, 3, 3) float64, intrinsics in pixels; the first pixel's middle is at (0.5, 0.5).
        sizes: (c, 2) int64, width and height of each picture in pixels.
        points: (p, 3) float64, in the world; empty if the files have none.
        colors: (p, 3) uint8, the points' colors.

    Example:
        >>> nothing = torch.zeros(0, 3)
        >>> camera = (torch.eye(4)[None], torch.eye(3)[None], torch.tensor([[64, 48]]))
        >>> len(ts.render.Capture(("a.png",), *camera, points=nothing, colors=nothing.byte()))
        1
    """

    images: tuple[Path, ...]
    viewmats: Tensor
    Ks: Tensor
    sizes: Tensor
    points: Tensor
    colors: Tensor

    def __len__(self) -> int:
        return len(self.images)


def capture_of(frames: Sequence[Frame], points: Tensor, colors: Tensor) -> Capture:
    """The capture of these frames. Their pictures are opened, for their sizes, not read.

    Raises:
        InputError: a picture is not one, or not of the size that its camera has.
    """
    sizes = [_upright_size(frame) for frame in frames]
    Ks = torch.stack([frame.intrinsics(*size) for frame, size in zip(frames, sizes, strict=True)])
    viewmats = torch.stack([viewmat_of(frame.pose) for frame in frames])
    return Capture(tuple(frame.image for frame in frames), viewmats, Ks, torch.tensor(sizes), points, colors)


def viewmat_of(pose: Tensor) -> Tensor:
    """(..., 4, 4) world to camera, x right, y down, z ahead, of poses from camera to world in OpenGL's convention."""
    turn = pose[..., :3, :3] * pose.new_tensor([1, -1, -1])
    viewmat = torch.zeros_like(pose)
    viewmat[..., :3, :3] = turn.mT
    viewmat[..., :3, 3] = -(turn.mT @ pose[..., :3, 3:])[..., 0]
    viewmat[..., 3, 3] = 1
    return viewmat


def pose_of(viewmat: Tensor) -> Tensor:
    """The other way round."""
    turn = viewmat[..., :3, :3].mT
    pose = torch.zeros_like(viewmat)
    pose[..., :3, :3] = turn * viewmat.new_tensor([1, -1, -1])
    pose[..., :3, 3] = -(turn @ viewmat[..., :3, 3:])[..., 0]
    pose[..., 3, 3] = 1
    return pose


def _upright_size(frame: Frame) -> tuple[int, int]:
    require_packages("reading the size of a picture", "apps", "PIL")
    from PIL import Image  # not needed to import tinsmith

    try:
        with Image.open(frame.image) as opened:
            width, height = opened.size
            is_sideways = opened.getexif().get(_ORIENTATION) in _SIDEWAYS
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as cause:
        rows = [("image", str(frame.image)), ("because", str(cause))]
        raise frame.entry.make_error("a picture of the dataset cannot be read", rows) from cause
    return (height, width) if is_sideways else (width, height)
