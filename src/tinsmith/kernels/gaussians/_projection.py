"""Projection of 3-D Gaussians to images. The reference is `reference.project_gaussians`.

Two kernels over pairs of an image and a Gaussian. `gaussian_radii` computes how far a Gaussian extends in an
image, 0 if it is not visible. `gaussian_projection` computes the projection of visible ones. Run the first over all
pairs and the second over the visible pairs: then memory and the cost of the gradient depend on the visible ones only.

With t the Gaussian's center in camera coordinates, J the derivative of the camera's projection there, and R the
camera's rotation, the covariance in the image is J R covar R^T J^T, and `eps2d` is added to its diagonal.
"""

from types import ModuleType
from typing import Any

EXTENT = 333.0
"""The maximum extent of a Gaussian, in hundredths of a standard deviation."""


def gaussian_radii(lang: ModuleType, *, fp: str, camera_model: str, by_opacity: bool, compensate: bool) -> Any:
    """Build the kernel that computes how far Gaussians extend in images.

    Its parameters, of one float type unless noted:

        means      [g, 3]     in the world
        covars     [g, 6]     upper triangles
        opacities  [g]        read with `by_opacity` only
        viewmats   [v, 4, 4]  world to camera
        intrinsics [v, 3, 3]
        images, rows  [p] int32   of each pair: v and g
        width, height, eps2d, near_plane, far_plane, radius_clip   numbers
        radii      [p, 2] int32   along x and y, pixels; 0 and 0 where the Gaussian is not seen

    Args:
        lang: the engine's module.
        fp: the type of the arrays, "f32" or "f64".
        camera_model: "pinhole", "ortho" or "fisheye".
        by_opacity: whether a Gaussian ends where its alpha falls below 1 / 255.
        compensate: whether its opacity is multiplied by the compensation first.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    camera_point, spread = build_projection(lang, fp=fp, camera_model=camera_model)
    image_point = build_image_point(lang, fp=fp, camera_model=camera_model)
    extent = EXTENT

    @lang.kernel
    def gaussian_radii(
        means: array,
        covars: array,
        opacities: array,
        viewmats: array,
        intrinsics: array,
        images: array,
        rows: array,
        width: real,
        height: real,
        eps2d: real,
        near_plane: real,
        far_plane: real,
        radius_clip: real,
        radii: array,
    ):
        for p in range(images.shape[0]):
            v, g = images[p], rows[p]
            x, y, z = camera_point(means, viewmats, v, g)
            if z >= near_plane and z <= far_plane:
                u, w = image_point(intrinsics, v, x, y, z)
                a, b, c = spread(covars, viewmats, intrinsics, v, g, x, y, z, width, height)
                before = a * c - b * b
                a += eps2d
                c += eps2d
                area = a * c - b * b
                extent2 = real(extent * extent) / real(10000.0)
                is_seen = area > real(0.0)
                if lang.static(by_opacity):
                    opacity = opacities[g]
                    if lang.static(compensate):
                        opacity *= lang.sqrt(lang.max(before / area, real(0.0)))
                    times = opacity * real(255.0)  # the faintest alpha is 1 / 255
                    is_seen = is_seen and times >= real(1.0)
                    extent2 = lang.min(extent2, 2 * lang.log(lang.max(times, real(1.0))))
                if is_seen:
                    along_x = lang.ceil(lang.sqrt(extent2 * a))
                    along_y = lang.ceil(lang.sqrt(extent2 * c))
                    is_inside = u + along_x > 0 and u - along_x < width and w + along_y > 0 and w - along_y < height
                    if is_inside and (along_x > radius_clip or along_y > radius_clip):
                        # A huge radius does not fit an integer; this one covers any image.
                        radii[p, 0] = lang.cast(lang.min(along_x, real(16777216.0)), lang.i32)
                        radii[p, 1] = lang.cast(lang.min(along_y, real(16777216.0)), lang.i32)

    return gaussian_radii


def gaussian_projection(lang: ModuleType, *, fp: str, camera_model: str) -> Any:
    """Build the kernel that projects visible Gaussians. Its parameters are those of `gaussian_radii` and

        means2d        [p, 2]  centers, pixels
        depths         [p]     along the camera's z axis
        conics         [p, 3]  the inverse of the covariance in the image: xx, xy, yy
        compensations  [p]     sqrt(det of the covariance before eps2d / after it), 0 where it is negative

    Outputs of pairs of radius 0 are left unchanged. Differentiable in means, covars, viewmats and intrinsics.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    camera_point, spread = build_projection(lang, fp=fp, camera_model=camera_model)
    image_point = build_image_point(lang, fp=fp, camera_model=camera_model)

    @lang.kernel
    def gaussian_projection(
        means: array,
        covars: array,
        viewmats: array,
        intrinsics: array,
        images: array,
        rows: array,
        radii: array,
        width: real,
        height: real,
        eps2d: real,
        means2d: array,
        depths: array,
        conics: array,
        compensations: array,
    ):
        for p in range(images.shape[0]):
            if radii[p, 0] > 0:
                v, g = images[p], rows[p]
                x, y, z = camera_point(means, viewmats, v, g)
                u, w = image_point(intrinsics, v, x, y, z)
                a, b, c = spread(covars, viewmats, intrinsics, v, g, x, y, z, width, height)
                wide_a, wide_c = a + eps2d, c + eps2d
                area = wide_a * wide_c - b * b
                means2d[p, 0], means2d[p, 1], depths[p] = u, w, z
                conics[p, 0], conics[p, 1], conics[p, 2] = wide_c / area, -b / area, wide_a / area
                ratio = (a * c - b * b) / area
                # A branch, since the root has no derivative at 0.
                if ratio > real(0.0):
                    compensations[p] = lang.sqrt(ratio)

    return gaussian_projection


def build_image_point(lang: ModuleType, *, fp: str, camera_model: str) -> Any:
    """Build the function that projects a point in camera coordinates to pixels."""
    real = getattr(lang, fp)

    @lang.func
    def image_point(intrinsics: lang.template(), v, x, y, z):
        fx, fy, cx, cy = intrinsics[v, 0, 0], intrinsics[v, 1, 1], intrinsics[v, 0, 2], intrinsics[v, 1, 2]
        across, down = x, y
        if lang.static(camera_model == "pinhole"):
            across, down = x / z, y / z
        elif lang.static(camera_model == "fisheye"):
            length = lang.sqrt(x * x + y * y + real(1e-12))
            stretch = lang.atan2(length, z) / length
            across, down = x * stretch, y * stretch
        return fx * across + cx, fy * down + cy

    return image_point


def build_projection(lang: ModuleType, *, fp: str, camera_model: str) -> tuple[Any, Any]:
    """Build the functions of a Gaussian's center in camera coordinates, and of its covariance in the image."""
    real = getattr(lang, fp)

    @lang.func
    def camera_point(means: lang.template(), viewmats: lang.template(), v, g):
        mx, my, mz = means[g, 0], means[g, 1], means[g, 2]
        x = viewmats[v, 0, 0] * mx + viewmats[v, 0, 1] * my + viewmats[v, 0, 2] * mz + viewmats[v, 0, 3]
        y = viewmats[v, 1, 0] * mx + viewmats[v, 1, 1] * my + viewmats[v, 1, 2] * mz + viewmats[v, 1, 3]
        z = viewmats[v, 2, 0] * mx + viewmats[v, 2, 1] * my + viewmats[v, 2, 2] * mz + viewmats[v, 2, 3]
        return x, y, z

    @lang.func
    def slopes(intrinsics: lang.template(), v, x, y, z, width, height):
        """Return the derivative of the image point in the camera point, two rows of three."""
        fx, fy = intrinsics[v, 0, 0], intrinsics[v, 1, 1]
        ux, uy, uz = fx, real(0.0), real(0.0)
        wx, wy, wz = real(0.0), fy, real(0.0)
        if lang.static(camera_model == "pinhole"):
            # Far outside the image the derivative would be huge: it is taken slightly outside the image's edge instead.
            cx, cy = intrinsics[v, 0, 2], intrinsics[v, 1, 2]
            beyond_x, beyond_y = real(3.0) / real(20.0) * width / fx, real(3.0) / real(20.0) * height / fy
            across = lang.min(lang.max(x / z, -cx / fx - beyond_x), (width - cx) / fx + beyond_x)
            down = lang.min(lang.max(y / z, -cy / fy - beyond_y), (height - cy) / fy + beyond_y)
            ux, uz = fx / z, -fx * across / z
            wy, wz = fy / z, -fy * down / z
        elif lang.static(camera_model == "fisheye"):
            length2 = x * x + y * y + real(1e-12)
            length = lang.sqrt(length2)
            stretch = lang.atan2(length, z) / length
            far2 = length2 + z * z
            # the derivative of `stretch` in x or y, divided by that x or y
            change = (z / far2 - stretch) / length2
            ux, uy, uz = fx * (stretch + x * x * change), fx * x * y * change, -fx * x / far2
            wx, wy, wz = fy * x * y * change, fy * (stretch + y * y * change), -fy * y / far2
        return ux, uy, uz, wx, wy, wz

    @lang.func
    def to_world(viewmats: lang.template(), v, x, y, z):
        """Rotate the direction (x, y, z) from camera to world coordinates."""
        right = viewmats[v, 0, 0] * x + viewmats[v, 1, 0] * y + viewmats[v, 2, 0] * z
        down = viewmats[v, 0, 1] * x + viewmats[v, 1, 1] * y + viewmats[v, 2, 1] * z
        ahead = viewmats[v, 0, 2] * x + viewmats[v, 1, 2] * y + viewmats[v, 2, 2] * z
        return right, down, ahead

    @lang.func
    def project_covariance(
        covars: lang.template(),
        viewmats: lang.template(),
        intrinsics: lang.template(),
        v,
        g,
        x,
        y,
        z,
        width,
        height,
    ):
        """Project a Gaussian's covariance to the image, and return its entries xx, xy, yy."""
        ux, uy, uz, wx, wy, wz = slopes(intrinsics, v, x, y, z, width, height)
        u0, u1, u2 = to_world(viewmats, v, ux, uy, uz)
        w0, w1, w2 = to_world(viewmats, v, wx, wy, wz)
        c00, c01, c02 = covars[g, 0], covars[g, 1], covars[g, 2]
        c11, c12, c22 = covars[g, 3], covars[g, 4], covars[g, 5]
        p0 = c00 * u0 + c01 * u1 + c02 * u2
        p1 = c01 * u0 + c11 * u1 + c12 * u2
        p2 = c02 * u0 + c12 * u1 + c22 * u2
        q0 = c00 * w0 + c01 * w1 + c02 * w2
        q1 = c01 * w0 + c11 * w1 + c12 * w2
        q2 = c02 * w0 + c12 * w1 + c22 * w2
        return u0 * p0 + u1 * p1 + u2 * p2, w0 * p0 + w1 * p1 + w2 * p2, w0 * q0 + w1 * q1 + w2 * q2

    return camera_point, project_covariance
