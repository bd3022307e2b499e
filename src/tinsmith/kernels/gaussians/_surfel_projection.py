"""Projection of surfels, which are flat Gaussians, to images of pinhole cameras. The reference is
`reference.project_surfels`.

A surfel's point (u, v) is at center + u scale_0 axis_0 + v scale_1 axis_1. The transform T takes (u, v, 1) to
homogeneous pixels (x w, y w, w). The circle u^2 + v^2 = 1 is projected to the conic whose dual is
T diag(1, 1, -1) T^T, from which its center and its bounding box are computed.
"""

from types import ModuleType
from typing import Any

from ._covariance import build_rotation
from ._projection import EXTENT, build_projection


def surfel_radii(lang: ModuleType, *, fp: str) -> Any:
    """Build the kernel that computes how far surfels extend in images.

    Its parameters, of one float type unless noted:

    means   [g, 3],  quats [g, 4],  scales [g, 3]  in the world; the third scale is not read
    viewmats   [v, 4, 4]  world to camera
    intrinsics [v, 3, 3]
    images, rows  [p] int32   of each pair: v and g
    width, height, near_plane, far_plane, radius_clip   numbers
    radii   [p, 2] int32  along x and y, pixels; 0 and 0 where the surfel is not seen
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    transform, box, _ = build_surfel_frames(lang, fp=fp)
    extent = EXTENT

    @lang.kernel
    def surfel_radii(
        means: array,
        quats: array,
        scales: array,
        viewmats: array,
        intrinsics: array,
        images: array,
        rows: array,
        width: real,
        height: real,
        near_plane: real,
        far_plane: real,
        radius_clip: real,
        radii: array,
    ):
        for p in range(images.shape[0]):
            v, g = images[p], rows[p]
            a0, a1, a2, b0, b1, b2, c0, c1, c2 = transform(means, quats, scales, viewmats, intrinsics, v, g)
            if c2 > near_plane and c2 < far_plane:
                u, w, spread_u, spread_w, is_open = box(a0, a1, a2, b0, b1, b2, c0, c1, c2)
                least = real(1.0) / real(10000.0)
                reach = real(extent) / real(100.0)
                along_x = lang.ceil(reach * lang.sqrt(lang.max(spread_u, least)))
                along_y = lang.ceil(reach * lang.sqrt(lang.max(spread_w, least)))
                is_inside = u + along_x > 0 and u - along_x < width and w + along_y > 0 and w - along_y < height
                if is_open and is_inside and (along_x > radius_clip or along_y > radius_clip):
                    radii[p, 0] = lang.cast(lang.min(along_x, real(16777216.0)), lang.i32)
                    radii[p, 1] = lang.cast(lang.min(along_y, real(16777216.0)), lang.i32)

    return surfel_radii


def surfel_projection(lang: ModuleType, *, fp: str) -> Any:
    """Build the kernel that projects visible surfels. Its parameters are those of `surfel_radii` and

        means2d     [p, 2]  centers of the ellipses, pixels
        depths      [p]     along the camera's z axis
        transforms  [p, 9]  row by row
        normals     [p, 3]  in camera coordinates, toward the camera

    Outputs of pairs of radius 0 are left unchanged. Differentiable in all floats.
    """
    array = lang.types.ndarray()
    transform, box, facing = build_surfel_frames(lang, fp=fp)

    @lang.kernel
    def surfel_projection(
        means: array,
        quats: array,
        scales: array,
        viewmats: array,
        intrinsics: array,
        images: array,
        rows: array,
        radii: array,
        means2d: array,
        depths: array,
        transforms: array,
        normals: array,
    ):
        for p in range(images.shape[0]):
            if radii[p, 0] > 0:
                v, g = images[p], rows[p]
                a0, a1, a2, b0, b1, b2, c0, c1, c2 = transform(means, quats, scales, viewmats, intrinsics, v, g)
                u, w, _spread_u, _spread_w, _is_open = box(a0, a1, a2, b0, b1, b2, c0, c1, c2)
                x, y, z = facing(means, quats, viewmats, v, g)
                means2d[p, 0], means2d[p, 1], depths[p] = u, w, c2
                transforms[p, 0], transforms[p, 1], transforms[p, 2] = a0, a1, a2
                transforms[p, 3], transforms[p, 4], transforms[p, 5] = b0, b1, b2
                transforms[p, 6], transforms[p, 7], transforms[p, 8] = c0, c1, c2
                normals[p, 0], normals[p, 1], normals[p, 2] = x, y, z

    return surfel_projection


def build_surfel_frames(lang: ModuleType, *, fp: str) -> tuple[Any, Any, Any]:
    """Build the functions of a surfel's transform, of its bounding box in the image, and of its normal."""
    real = getattr(lang, fp)
    rotation = build_rotation(lang, fp=fp)
    camera_point, _ = build_projection(lang, fp=fp, camera_model="pinhole")

    @lang.func
    def to_camera(viewmats: lang.template(), v, x, y, z):
        """Rotate the direction (x, y, z) from world to camera coordinates."""
        right = viewmats[v, 0, 0] * x + viewmats[v, 0, 1] * y + viewmats[v, 0, 2] * z
        down = viewmats[v, 1, 0] * x + viewmats[v, 1, 1] * y + viewmats[v, 1, 2] * z
        ahead = viewmats[v, 2, 0] * x + viewmats[v, 2, 1] * y + viewmats[v, 2, 2] * z
        return right, down, ahead

    @lang.func
    def transform(
        means: lang.template(),
        quats: lang.template(),
        scales: lang.template(),
        viewmats: lang.template(),
        intrinsics: lang.template(),
        v,
        g,
    ):
        r00, r01, _r02, r10, r11, _r12, r20, r21, _r22 = rotation(quats, g)
        s, t = scales[g, 0], scales[g, 1]
        u0, u1, u2 = to_camera(viewmats, v, s * r00, s * r10, s * r20)
        w0, w1, w2 = to_camera(viewmats, v, t * r01, t * r11, t * r21)
        x, y, z = camera_point(means, viewmats, v, g)
        fx, fy, cx, cy = intrinsics[v, 0, 0], intrinsics[v, 1, 1], intrinsics[v, 0, 2], intrinsics[v, 1, 2]
        a0, a1, a2 = fx * u0 + cx * u2, fx * w0 + cx * w2, fx * x + cx * z
        b0, b1, b2 = fy * u1 + cy * u2, fy * w1 + cy * w2, fy * y + cy * z
        return a0, a1, a2, b0, b1, b2, u2, w2, z

    @lang.func
    def box(a0, a1, a2, b0, b1, b2, c0, c1, c2):
        """Return the center and the squared half sides of the bounding box, and whether it is finite."""
        distance = c0 * c0 + c1 * c1 - c2 * c2
        is_open = distance != real(0.0)
        shrink = real(1.0) / lang.select(is_open, distance, real(1.0))
        u = (a0 * c0 + a1 * c1 - a2 * c2) * shrink
        w = (b0 * c0 + b1 * c1 - b2 * c2) * shrink
        spread_u = u * u - (a0 * a0 + a1 * a1 - a2 * a2) * shrink
        spread_w = w * w - (b0 * b0 + b1 * b1 - b2 * b2) * shrink
        return u, w, spread_u, spread_w, is_open

    @lang.func
    def facing(means: lang.template(), quats: lang.template(), viewmats: lang.template(), v, g):
        """Return the normal in camera coordinates, oriented toward the camera."""
        _r00, _r01, r02, _r10, _r11, r12, _r20, _r21, r22 = rotation(quats, g)
        x, y, z = camera_point(means, viewmats, v, g)
        n0, n1, n2 = to_camera(viewmats, v, r02, r12, r22)
        side = lang.select(n0 * x + n1 * y + n2 * z < real(0.0), real(1.0), real(-1.0))
        return side * n0, side * n1, side * n2

    return transform, box, facing
