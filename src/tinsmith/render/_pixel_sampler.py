"""PixelSampler: pixels drawn at random from pictures, with the rays through them, to train a radiance field."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._errors import ArgumentError, ShapeError, refusal
from ._cameras import Rays, add_camera_axis, pinhole_rays


class PixelSamples(NamedTuple):
    """Pixels of pictures, and the rays through their centers.

    Attributes:
        rays: `Rays`, origins and directions (n, 3).
        values: (n, c), the values of the pixels, in the dtype of the pictures.
        cameras: (n), int64, the picture of each pixel.

    Example:
        >>> sampler = ts.render.PixelSampler(torch.zeros(2, 4, 6, 3), torch.eye(4).expand(2, 4, 4), torch.eye(3))
        >>> rays, values, cameras = sampler.draw(5)
        >>> rays.directions.shape, values.shape, cameras.shape
        (torch.Size([5, 3]), torch.Size([5, 3]), torch.Size([5]))
    """

    rays: Rays
    values: Tensor
    cameras: Tensor


class PixelSampler:
    """A sampler of pixels from pictures with known cameras, all on one device.

    Args:
        pictures: (k, height, width, c), of any dtype.
        poses: (k, 4, 4) or (k, 3, 4), camera to world, float32 or float64, like the intrinsics. Differentiable.
        intrinsics: (k, 3, 3), or (3, 3) for all cameras, in pixels. Differentiable.
        convention: "opencv" or "opengl": see `pinhole_rays`.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Raises:
        ShapeError: the numbers of pictures and cameras differ, or a tensor has other dims.

    Example:
        >>> pictures = torch.arange(6.0).view(1, 2, 3, 1)
        >>> sampler = ts.render.PixelSampler(pictures, torch.eye(4)[None], torch.eye(3))
        >>> sampler.pick(*torch.tensor([[0], [1], [2]])).values
        tensor([[5.]])
    """

    def __init__(
        self,
        pictures: Tensor,
        poses: Tensor,
        intrinsics: Tensor,
        *,
        convention: str = "opencv",
        engine: str | None = None,
    ) -> None:
        self.poses, self.intrinsics = add_camera_axis(poses, intrinsics)
        if pictures.ndim != 4 or len(pictures) != len(self.poses):
            rows = [("expected", f"({len(self.poses)}, height, width, c)"), ("got", str(tuple(pictures.shape)))]
            remedy = "Pass one picture per camera."
            raise ShapeError(refusal("`pictures` of PixelSampler does not fit its cameras", rows, remedy))
        self.pictures, self.convention, self.engine = pictures, convention, engine

    def draw(self, n: int, generator: torch.Generator | None = None) -> PixelSamples:
        """Draw n pixels uniformly from all pictures, with replacement.

        Args:
            n: the number of pixels.
            generator: the random generator, on any device. None for torch's default generator on the CPU, so that a
                seed gives the same pixels on all devices.

        Raises:
            ArgumentError: the pictures have no pixels.
        """
        if not self.pictures.shape[:3].numel():
            rows = [("pictures", str(tuple(self.pictures.shape)))]
            raise ArgumentError(refusal("PixelSampler has no pixel to draw from", rows, "Pass pictures with pixels."))
        device = "cpu" if generator is None else generator.device
        sizes = self.pictures.shape[:3]
        return self.pick(*(torch.randint(size, (n,), generator=generator, device=device) for size in sizes))

    def pick(self, cameras: Tensor, rows: Tensor, columns: Tensor) -> PixelSamples:
        """Return the pixels at these rows and columns of these pictures: each (n), integers on any device."""
        cameras, rows, columns = (index.to(self.pictures.device) for index in (cameras, rows, columns))
        pixels = torch.stack([columns, rows], 1).to(self.poses.dtype) + 0.5
        camera = (self.poses, self.intrinsics, pixels, cameras)
        rays = pinhole_rays(*camera, convention=self.convention, engine=self.engine)
        return PixelSamples(rays, self.pictures[cameras, rows, columns], cameras)
