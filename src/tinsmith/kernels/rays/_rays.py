"""Kernels of pinhole rays and of ray-box intersection.

The references are `reference.pinhole_rays` and `ray_aabb_intersect`.
"""

from types import ModuleType
from typing import Any


def pinhole_rays(lang: ModuleType, *, fp: str, forward: int, normalize: bool) -> Any:
    """Build the kernel of a pinhole camera's rays.

    Its parameters, all of one float type unless another is named; all floats are differentiable:

        poses       [k, 3 or 4, 4]  camera to world
        intrinsics  [k, 3, 3]       rows (fx, skew, cx), (0, fy, cy), and one that is not read
        pixels      [n, 2]          (x, y)
        cameras     [n]             int32; an index out of range gives NaN
        origins, directions  [n, 3]

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        forward: the sign of the viewing direction along the camera's z axis: 1 (y is down then) or -1 (y is up).
        normalize: whether directions have length one; else they have depth one.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)

    @lang.kernel
    def pinhole_rays(poses: array, intrinsics: array, pixels: array, cameras: array, origins: array, directions: array):
        for i in range(pixels.shape[0]):
            c = cameras[i]
            if c < 0 or c >= poses.shape[0]:
                for axis in lang.static(range(3)):
                    origins[i, axis] = lang.math.nan
                    directions[i, axis] = lang.math.nan
            else:
                y = (pixels[i, 1] - intrinsics[c, 1, 2]) / intrinsics[c, 1, 1]
                x = (pixels[i, 0] - intrinsics[c, 0, 2] - intrinsics[c, 0, 1] * y) / intrinsics[c, 0, 0]
                shrink = real(1.0)
                if lang.static(normalize):
                    shrink = real(1.0) / lang.sqrt(x * x + y * y + real(1.0))
                for axis in lang.static(range(3)):
                    along = x * poses[c, axis, 0] + forward * (y * poses[c, axis, 1] + poses[c, axis, 2])
                    origins[i, axis] = poses[c, axis, 3]
                    directions[i, axis] = shrink * along

    return pinhole_rays


def ray_aabb_intersect(lang: ModuleType, *, fp: str) -> Any:
    """Build the kernel that intersects rays with a box.

    Its parameters, all of one float type but `hit`; differentiable in origins, directions and aabb:

        origins, directions  [n, 3]
        aabb    [6]  lower corner, upper corner
        near, far    numbers: the part of a ray that counts
        t_near, t_far  [n], hit  [n] bool

    A ray parallel to two faces either is between them or misses; there is no division by zero.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)

    @lang.kernel
    def ray_aabb_intersect(
        origins: array, directions: array, aabb: array, near: real, far: real, t_near: array, t_far: array, hit: array
    ):
        for i in range(origins.shape[0]):
            enter, leave, beside = near, far, 0
            for axis in lang.static(range(3)):
                o, d = origins[i, axis], directions[i, axis]
                if d != 0.0:
                    first, second = (aabb[axis] - o) / d, (aabb[axis + 3] - o) / d
                    enter = lang.max(enter, lang.min(first, second))
                    leave = lang.min(leave, lang.max(first, second))
                elif o < aabb[axis] or o > aabb[axis + 3]:
                    beside = 1
            if beside == 0 and enter <= leave:
                t_near[i] = enter
                t_far[i] = leave
                hit[i] = True
            else:
                t_near[i] = far
                t_far[i] = far
                hit[i] = False

    return ray_aabb_intersect


def positions(lang: ModuleType) -> Any:
    """Build the kernel of samples' positions. Each ray is a thread, so its gradient needs no atomics.

    Its parameters, all of one float type but `rays`; differentiable in all others:

        origins, directions  [n, 3]
        t     [s]
        rays  [n, 2]  int32, the start and count of a ray's samples
        x     [s, 3]  origin + t direction; samples without a ray are left unchanged
    """
    array = lang.types.ndarray()

    @lang.kernel
    def positions(origins: array, directions: array, t: array, rays: array, x: array):
        for i in range(rays.shape[0]):
            for j in range(rays[i, 0], rays[i, 0] + rays[i, 1]):
                for axis in lang.static(range(3)):
                    x[j, axis] = origins[i, axis] + t[j] * directions[i, axis]

    return positions


def directions(lang: ModuleType) -> Any:
    """Build the kernel that copies each ray's direction to its samples. Its parameters:

    directions  [n, 3]  of rays. Differentiable.
    rays        [n, 2]  int32, the start and count of a ray's samples
    y           [s, 3]  of samples; samples without a ray are left unchanged
    """
    array = lang.types.ndarray()

    @lang.kernel
    def directions(directions: array, rays: array, y: array):
        for i in range(rays.shape[0]):
            for j in range(rays[i, 0], rays[i, 0] + rays[i, 1]):
                for axis in lang.static(range(3)):
                    y[j, axis] = directions[i, axis]

    return directions
