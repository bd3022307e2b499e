"""Pinhole cameras: their rays, and their frustums, the part of space that they can see."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import kernels
from .._errors import ArgumentError, DtypeError, ShapeError, nearest, refusal
from .._integers import read_positive
from ..operation import Op, op
from ..tracing import is_plain
from ._ops import get_op, register_maker

_FORWARD = {"opencv": 1, "opengl": -1}
"""The sign of a camera's viewing direction along its own z axis, by convention."""


class Rays(NamedTuple):
    """Origins and directions of rays.

    Attributes:
        origins: (n, 3), in world units.
        directions: (n, 3).

    Example:
        >>> intrinsics = torch.tensor([[50.0, 0, 32], [0, 50, 32], [0, 0, 1]])
        >>> origins, directions = ts.render.pinhole_rays(torch.eye(4), intrinsics, torch.tensor([[32.0, 32.0]]))
        >>> origins + 2.0 * directions
        tensor([[0., 0., 2.]])
    """

    origins: Tensor
    directions: Tensor


def pinhole_rays(
    poses: Tensor,
    intrinsics: Tensor,
    pixels: Tensor,
    cameras: Tensor | None = None,
    *,
    convention: str = "opencv",
    normalize: bool = True,
    engine: str | None = None,
) -> Rays:
    """Compute rays of pinhole cameras through points of their images.

    With a camera's pose (R | o), focal lengths fx and fy, principal point (cx, cy) and skew, for the point (u, v):

        y = (v - cy) / fy,   x = (u - cx - skew y) / fx
        direction = R (x, y, 1)           "opencv": the camera looks along +z, y is down in the image
        direction = R (x, -y, -1)         "opengl", Blender: it looks along -z, y is up

    Args:
        poses: (k, 4, 4), (k, 3, 4), or without k for one camera: camera to world. Differentiable.
        intrinsics: (k, 3, 3), or (3, 3) for all cameras, in pixels: rows (fx, skew, cx), (0, fy, cy), (0, 0, 1); the
            zeros and the last row are not read. Differentiable.
        pixels: (n, 2), columns u and rows v; the center of the first pixel is (0.5, 0.5). Differentiable.
        cameras: (n), the camera of each ray, int32 or int64; may be left out if there is one camera.
        convention: "opencv" or "opengl".
        normalize: return directions of length 1; otherwise their component along the camera's axis is 1.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Origins (n, 3) and directions (n, 3). On CUDA the rays of an out-of-range camera index are NaN.

    Raises:
        ShapeError: a tensor has another shape.
        DtypeError: `cameras` does not hold integers, or the others are neither float32 nor float64.
        ArgumentError: an unknown convention; `cameras` is missing and there are several cameras; on the CPU, an
            out-of-range index in `cameras`.

    Example:
        >>> intrinsics = torch.tensor([[50.0, 0, 32], [0, 50, 32], [0, 0, 1]])
        >>> ts.render.pinhole_rays(torch.eye(4), intrinsics, torch.tensor([[32.0, 32.0]])).directions
        tensor([[0., 0., 1.]])
    """
    if convention not in _FORWARD:
        raise _make_convention_error(convention)
    poses, intrinsics = add_camera_axis(poses, intrinsics)
    chosen = _resolve_cameras(cameras, len(poses), pixels)
    through: Op = get_op("pinhole_rays", engine, pixels, _FORWARD[convention], normalize)
    return Rays(*through(poses, intrinsics, pixels, chosen))


def image_rays(
    pose: Tensor,
    intrinsics: Tensor,
    width: int,
    height: int,
    *,
    convention: str = "opencv",
    normalize: bool = True,
    engine: str | None = None,
) -> Rays:
    """Compute rays through the centers of all pixels of a camera's image.

    Args:
        pose: (4, 4) or (3, 4), camera to world. Differentiable.
        intrinsics: (3, 3), in pixels. Differentiable.
        width: width of the image in pixels.
        height: height of the image in pixels.
        convention: "opencv" or "opengl", see `pinhole_rays`.
        normalize: return directions of length 1.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Origins (height, width, 3) and directions (height, width, 3).

    Raises:
        ShapeError: a tensor has another shape.
        ArgumentError: an unknown convention.

    Example:
        >>> intrinsics = torch.tensor([[50.0, 0, 32], [0, 50, 24], [0, 0, 1]])
        >>> ts.render.image_rays(torch.eye(4), intrinsics, 64, 48).directions.shape
        torch.Size([48, 64, 3])
    """
    if pose.ndim != 2:
        raise _make_shape_error("pose", "(4, 4) or (3, 4)", pose, "Give one camera; `pinhole_rays` takes several.")
    width, height = (read_positive(name, "`image_rays`", one) for name, one in (("width", width), ("height", height)))
    rows, columns = (torch.arange(size, dtype=pose.dtype, device=pose.device) + 0.5 for size in (height, width))
    v, u = torch.meshgrid(rows, columns, indexing="ij")
    pixels = torch.stack([u, v], -1).view(-1, 2)
    flat = pinhole_rays(pose, intrinsics, pixels, convention=convention, normalize=normalize, engine=engine)
    return Rays(*(rays.view(height, width, 3) for rays in flat))


@register_maker("pinhole_rays")
def _make_rays_op(lang: Any, fp: str, forward: int, normalize: bool) -> Op:
    spec = "poses[k, _, 4], intrinsics[k, 3, 3], pixels[n, 2], cameras[n]: i32 -> origins[n, 3], directions[n, 3]"
    kernel = kernels.pinhole_rays(lang, fp=fp, forward=forward, normalize=normalize)
    return op(spec, init={"origins": "empty", "directions": "empty"}, adjoint="source")(kernel)


def camera_axes(convention: str) -> Tensor:
    """Return the signs, (3), by which a direction is multiplied to convert it between OpenCV's axes and a convention's.

    Raises:
        ArgumentError: the convention is unknown.
    """
    if convention not in _FORWARD:
        raise _make_convention_error(convention)
    return torch.tensor([1.0, float(_FORWARD[convention]), float(_FORWARD[convention])])


def add_camera_axis(poses: Tensor, intrinsics: Tensor) -> tuple[Tensor, Tensor]:
    """Return poses and intrinsics with a leading camera axis, both for the same number of cameras.

    Raises:
        ShapeError: they are not camera-to-world matrices and 3 x 3 matrices.
    """
    if poses.ndim not in (2, 3) or tuple(poses.shape[-2:]) not in ((4, 4), (3, 4)):
        raise _make_shape_error(
            "poses", "(k, 4, 4), (k, 3, 4), (4, 4) or (3, 4)", poses, "Give camera-to-world matrices."
        )
    if intrinsics.ndim not in (2, 3) or tuple(intrinsics.shape[-2:]) != (3, 3):
        raise _make_shape_error(
            "intrinsics", "(k, 3, 3) or (3, 3)", intrinsics, "Give [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]."
        )
    if poses.ndim == 2:
        poses = poses[None]
    if intrinsics.ndim == 2:
        intrinsics = intrinsics.expand(len(poses), 3, 3)
    return poses, intrinsics


def _resolve_cameras(cameras: Tensor | None, count: int, pixels: Tensor) -> Tensor:
    """Return the camera of each ray, (n) int32: `cameras`, or 0 for all rays if it is None and there is one camera.

    Raises:
        ArgumentError, DtypeError: `cameras` is missing, out of range (checked on the CPU only), or not integers.
    """
    if cameras is None:
        if count != 1:
            rows = [("expected", "(n), the camera of each ray"), ("got", "None"), ("poses", f"{count} cameras")]
            remedy = "Pass cameras=, an index into poses for each ray."
            raise ArgumentError(refusal("`cameras` is missing in pinhole_rays", rows, remedy))
        return torch.zeros(pixels.shape[0], dtype=torch.int32, device=pixels.device)
    if cameras.dtype not in (torch.int32, torch.int64):
        rows = [("expected", "torch.int32 or torch.int64"), ("got", str(cameras.dtype))]
        raise DtypeError(refusal("`cameras` of pinhole_rays has the wrong dtype", rows, "Pass `cameras.long()`."))
    if is_plain() and not torch.compiler.is_compiling() and cameras.device.type == "cpu" and cameras.numel():
        _check_cameras(cameras, count)
    return cameras.to(torch.int32)


def _check_cameras(cameras: Tensor, count: int) -> None:
    least, most = (int(end) for end in cameras.aminmax())
    if least < 0 or most >= count:
        rows = [("expected", f"0 to {count - 1}"), ("got", f"{least} to {most}")]
        remedy = "Pass indices into poses."
        raise ArgumentError(refusal("`cameras` has an index out of range in pinhole_rays", rows, remedy))


def _make_shape_error(name: str, expected: str, tensor: Tensor, remedy: str) -> ShapeError:
    rows = [("expected", expected), ("got", str(tuple(tensor.shape)))]
    return ShapeError(refusal(f"`{name}` has the wrong shape for a pinhole camera", rows, remedy))


def _make_convention_error(convention: str) -> ArgumentError:
    rows = [("expected", ", ".join(map(repr, _FORWARD))), ("got", repr(convention))]
    close = nearest(str(convention), list(_FORWARD))
    remedy = f"Did you mean {close!r}?" if close else "Blender and transforms.json are 'opengl', COLMAP is 'opencv'."
    return ArgumentError(refusal("pinhole_rays got an unknown `convention`", rows, remedy))


def find_visible_balls(
    centers: Tensor,
    radius: float | Tensor,
    poses: Tensor,
    intrinsics: Tensor,
    size: tuple[int, int],
    *,
    near: float,
    convention: str,
) -> Tensor:
    """Find the balls that intersect the frustum of any camera.

    A ball is outside a frustum if it lies entirely behind one of its planes. This is conservative: near an edge of the
    frustum a few balls too many are kept, but a visible one is never dropped.

    Args:
        centers: (m, 3), the centers of the balls, world units.
        radius: the radius of all balls, world units.
        poses: (k, 4, 4), (k, 3, 4), or without k; camera to world.
        intrinsics: (k, 3, 3) or (3, 3), pixels.
        size: width and height of the images, pixels.
        near: the smallest visible depth, world units.
        convention: "opencv" or "opengl".

    Returns:
        (m), bool: True for a ball that may be visible.

    Raises:
        ArgumentError: the images have no pixels, or the convention is unknown.
        ShapeError: poses or intrinsics have another shape.
    """
    width, height = size
    if width < 1 or height < 1:
        rows = [("expected", "1 pixel or more each way"), ("got", f"{width} x {height}")]
        remedy = "Pass width and height in pixels."
        raise ArgumentError(refusal("`width` and `height` are less than 1 pixel", rows, remedy))
    axes = camera_axes(convention).to(centers)
    seen = torch.zeros(len(centers), dtype=torch.bool, device=centers.device)
    for pose, matrix in zip(*(given.to(centers) for given in add_camera_axis(poses, intrinsics)), strict=True):
        (fx, skew, cx), (_, fy, cy) = matrix[0], matrix[1]
        zero, one = torch.zeros_like(fx), torch.ones_like(fx)
        inward = [(fx, skew, cx), (-fx, -skew, width - cx), (zero, fy, cy), (zero, -fy, height - cy), (zero, zero, one)]
        normals = torch.stack([torch.stack(row) for row in inward])
        normals = normals / normals.norm(dim=1, keepdim=True)
        depths = (centers - pose[:3, 3]) @ (pose[:3, :3] @ (axes[:, None] * normals.T))
        depths[:, 4] -= near
        seen |= (depths >= -radius).all(1)
    return seen
