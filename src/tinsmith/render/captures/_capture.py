"""Captures: the pictures of a scene and the cameras that took them, as tensors and paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..._errors import InputError, refusal
from ..._extras import require_packages
from ..._untrusted import open_picture
from ._frames import Frame
from ._lenses import Array, Camera, CameraModel

_SIDEWAYS = (5, 6, 7, 8)  # EXIF's orientations that swap width and height
_ORIENTATION = 0x0112  # EXIF's tag of the orientation


@dataclass(frozen=True)
class Observations:
    """The points of a capture that one picture shows, for a loss on depths for example.

    Attributes:
        points: (m) int64, indices into the capture's points.
        pixels: (m, 2) float64, their positions in the picture, x and y; the first pixel's center is at (0.5, 0.5).
        depths: (m) float64, their distances along the camera's axis.

    Example:
        >>> ts.render.Observations(torch.tensor([4]), torch.tensor([[10.5, 20.0]]), torch.tensor([3.0])).depths
        tensor([3.])
    """

    points: Tensor
    pixels: Tensor
    depths: Tensor


@dataclass(frozen=True)
class Capture:
    """Pictures of a scene by c cameras, and known points of it.

    Cameras have no distortion. If a lens distorts, the file of a picture is as it was taken: `load_image` undistorts
    it, and `Ks`, `sizes` and `observations` describe the picture that `load_image` returns.

    Attributes:
        images: c paths of the pictures.
        viewmats: (c, 4, 4) float64, world to camera, x right, y down, z ahead: as `gaussians.rasterization` takes them.
        Ks: (c, 3, 3) float64, intrinsics in pixels; the first pixel's center is at (0.5, 0.5).
        sizes: (c, 2) int64, width and height of each picture in pixels.
        points: (p, 3) float64, in the world; empty if the files have none.
        colors: (p, 3) uint8, the points' colors.
        cameras: the c cameras with their models; empty if all are pinholes.
        observations: for each picture the points that it shows; empty if the files do not say.

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
    cameras: tuple[Camera, ...] = ()
    observations: tuple[Observations, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    @property
    def camera_models(self) -> tuple[CameraModel, ...]:
        """The camera model of each picture, "pinhole" or "fisheye" (equidistant), as in `gaussians.rasterization`."""
        return tuple(camera.model for camera in self.cameras) or ("pinhole",) * len(self)

    @property
    def scene_scale(self) -> float:
        """The size of the scene by gsplat's definition: the largest distance of a camera from the mean of all cameras.

        gsplat's trainer passes 1.1 times this as `scene_scale` to strategies.
        """
        centers = -(self.viewmats[:, :3, :3].mT @ self.viewmats[:, :3, 3:])[..., 0]
        return (centers - centers.mean(0)).norm(dim=1).max().item()

    def load_image(self, index: int) -> Tensor:
        """Read a picture, upright and without the distortion of its lens.

        Args:
            index: the index of the picture, from 0.

        Returns:
            (height, width, 3) uint8, or 4 channels where the file has an alpha channel.

        Raises:
            InputError: the file cannot be read, or has another size than when the capture was loaded.
        """
        undistortion = self.cameras[index].undistortion if self.cameras else None
        size = undistortion.taken.size if undistortion else tuple(self.sizes[index].tolist())
        pixels = _read_pixels(Path(self.images[index]), size)
        return torch.from_numpy(undistortion.apply(pixels) if undistortion else pixels)

    def load_mask(self, index: int) -> Tensor | None:
        """Return the mask of valid pixels of an undistorted picture, (height, width) bool; None if all are valid.

        Undistorted fisheye pictures have pixels that the camera did not see: `load_image` returns 0 there.
        """
        undistortion = self.cameras[index].undistortion if self.cameras else None
        mask = undistortion.mask if undistortion else None
        return None if mask is None else torch.from_numpy(mask.copy())


def build_capture(frames: Sequence[Frame], points: Tensor, colors: Tensor, seen: Sequence[Tensor] = ()) -> Capture:
    """Build the capture of these frames. Picture files are opened only to read their sizes.

    Args:
        frames: the pictures and their cameras.
        points: (p, 3), float64, in the world.
        colors: (p, 3), uint8.
        seen: for each frame the indices of the points that it observes; empty if unknown.

    Raises:
        InputError: a file is not a picture, or its aspect ratio differs from its camera's.
    """
    cameras = tuple([frame.camera(*_upright_size(frame)) for frame in frames])
    viewmats = torch.stack([convert_to_viewmat(frame.pose) for frame in frames])
    observations = [
        observe(points, rows, viewmat, camera) for rows, viewmat, camera in zip(seen, viewmats, cameras, strict=False)
    ]
    return Capture(
        tuple(frame.image for frame in frames),
        viewmats,
        torch.stack([camera.intrinsics for camera in cameras]),
        torch.tensor([camera.size for camera in cameras]),
        points,
        colors,
        cameras,
        tuple(observations),
    )


def observe(points: Tensor, rows: Tensor, viewmat: Tensor, camera: Camera) -> Observations:
    """Project the points with the indices `rows`, and return those in front of the camera and inside its picture."""
    before = points[rows] @ viewmat[:3, :3].mT + viewmat[:3, 3]
    pixels, depths = camera.project(before), before[:, 2]
    is_shown = ((pixels >= 0) & (pixels < pixels.new_tensor(camera.size))).all(1) & (depths > 0)
    return Observations(rows[is_shown], pixels[is_shown], depths[is_shown])


def convert_to_viewmat(pose: Tensor) -> Tensor:
    """Convert camera-to-world poses (..., 4, 4) in OpenGL's convention to world-to-camera matrices (..., 4, 4).

    In the result the camera's axes are x right, y down, z ahead.
    """
    turn = pose[..., :3, :3] * pose.new_tensor([1, -1, -1])
    viewmat = torch.zeros_like(pose)
    viewmat[..., :3, :3] = turn.mT
    viewmat[..., :3, 3] = -(turn.mT @ pose[..., :3, 3:])[..., 0]
    viewmat[..., 3, 3] = 1
    return viewmat


def convert_to_pose(viewmat: Tensor) -> Tensor:
    """Convert world-to-camera matrices (..., 4, 4) to camera-to-world poses in OpenGL's convention."""
    turn = viewmat[..., :3, :3].mT
    pose = torch.zeros_like(viewmat)
    pose[..., :3, :3] = turn * viewmat.new_tensor([1, -1, -1])
    pose[..., :3, 3] = -(turn @ viewmat[..., :3, 3:])[..., 0]
    pose[..., 3, 3] = 1
    return pose


def _upright_size(frame: Frame) -> tuple[int, int]:
    """Read the width and height of a frame's picture, rotated by its EXIF data.

    They are not rotated if only the stored orientation fits the frame's intrinsics.
    """
    require_packages("reading the size of a picture", "captures", "PIL")

    def make_error(reason: str, remedy: str) -> InputError:
        rows: list[tuple[str, ...]] = [("image", str(frame.image)), ("because", reason)]
        return frame.entry.make_error("a picture of the dataset cannot be read", rows, remedy)

    with open_picture(frame.image, make_error) as opened:
        width, height = opened.size
        is_sideways = opened.getexif().get(_ORIENTATION) in _SIDEWAYS
    is_turned = is_sideways and (frame.fits(height, width) or not frame.fits(width, height))
    return (height, width) if is_turned else (width, height)


def _read_pixels(path: Path, size: tuple[int, ...]) -> Array:
    from PIL import ImageOps  # not needed to import tinsmith

    def make_error(reason: str, remedy: str) -> InputError:
        rows = [("image", str(path)), ("because", reason)]
        return InputError(refusal("a picture of the capture cannot be read", rows, remedy))

    with open_picture(path, make_error) as opened:
        # Only if it is rotated: `exif_transpose` would copy an upright picture.
        is_turned = opened.getexif().get(_ORIENTATION, 1) != 1
        upright = ImageOps.exif_transpose(opened) if is_turned else opened
        image = upright if upright.size == size else opened
        mode = "RGBA" if ("A" in image.getbands() or "transparency" in image.info) else "RGB"
        pixels = np.array(image if image.mode == mode else image.convert(mode))
    if pixels.shape[1::-1] != size:
        rows = [("image", str(path), f"{pixels.shape[1]} x {pixels.shape[0]}"), ("expected", f"{size[0]} x {size[1]}")]
        remedy = "Load the capture again."
        raise InputError(refusal("a picture of the capture has another size than before", rows, remedy))
    return pixels
