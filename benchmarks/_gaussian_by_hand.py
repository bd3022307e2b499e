"""The gradients of `tinsmith.render.gaussians`, written by hand, with which the generated ones are compared.

Each is a backward kernel as a person writes it, for a forward kernel of `tinsmith.kernels`. Blending is in two forms:

    back to front   the forward kernel also says where a pixel ended; from there back, each alpha divided out again
    front to back   what is behind a Gaussian is the image less what was in front of it; nothing else is stored

The forward kernel takes alpha from `build_alpha_at_pixel`, as ours does. The backward kernels compute it themselves:
they need exp(-power) by itself too, and a division to get it back would slow down a rival.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

# pyright: reportInvalidTypeForm=false

from types import ModuleType
from typing import Any

from tinsmith.kernels.gaussians._blend import FAINTEST, MOST, OPAQUE, build_alpha_at_pixel
from tinsmith.kernels.gaussians._covariance import build_rotation
from tinsmith.kernels.gaussians._projection import build_projection


def blend_to_an_end(lang: ModuleType, *, fp: str, channels: int, tile_size: int) -> Any:
    """Build a kernel like `kernels.gaussian_blend`; `last` is the end of the part of the tile's list that the pixel
    used.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    most, opaque = MOST, OPAQUE
    at_pixel = build_alpha_at_pixel(lang, fp=fp)

    @lang.kernel
    def blend_to_an_end(
        means2d: array,
        conics: array,
        colors: array,
        opacities: array,
        ids: array,
        starts: array,
        image: array,
        left: array,
        last: array,
    ):
        for v, y, x in lang.ndrange(image.shape[0], image.shape[1], image.shape[2]):
            row = v * (image.shape[1] // tile_size) + y // tile_size
            tile = row * (image.shape[2] // tile_size) + x // tile_size
            through = real(1.0)
            total = lang.Vector([0.0] * channels, dt=real)
            end = starts[tile]
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                _dx, _dy, peak, is_seen = at_pixel(means2d, conics, opacities, i, x, y)
                alpha = lang.min(real(most), peak)
                if is_seen:
                    after = through * (real(1.0) - alpha)
                    if after <= real(opaque):
                        break
                    weight = alpha * through
                    for c in lang.static(range(channels)):
                        total[c] += weight * colors[i, c]
                    through = after
                    end = k + 1
            last[v, y, x] = end
            left[v, y, x] = through
            for c in lang.static(range(channels)):
                image[v, y, x, c] = total[c]

    return blend_to_an_end


def blend_back_to_front(lang: ModuleType, *, fp: str, channels: int, tile_size: int) -> Any:
    """Build the gradient of `blend_to_an_end`, from each pixel's last Gaussian to its first."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    most, faintest = MOST, FAINTEST

    @lang.kernel
    def blend_back_to_front(
        means2d: array,
        conics: array,
        colors: array,
        opacities: array,
        ids: array,
        starts: array,
        left: array,
        last: array,
        grad_image: array,
        grad_left: array,
        grad_means2d: array,
        grad_conics: array,
        grad_colors: array,
        grad_opacities: array,
    ):
        for v, y, x in lang.ndrange(left.shape[0], left.shape[1], left.shape[2]):
            row = v * (left.shape[1] // tile_size) + y // tile_size
            tile = row * (left.shape[2] // tile_size) + x // tile_size
            cotangent = lang.Vector([0.0] * channels, dt=real)
            for c in lang.static(range(channels)):
                cotangent[c] = grad_image[v, y, x, c]
            through = left[v, y, x]
            behind = through * grad_left[v, y, x]
            for back in range(last[v, y, x] - starts[tile]):
                i = ids[last[v, y, x] - 1 - back]
                dx, dy = means2d[i, 0] - (x + real(0.5)), means2d[i, 1] - (y + real(0.5))
                power = real(0.5) * (conics[i, 0] * dx * dx + conics[i, 2] * dy * dy) + conics[i, 1] * dx * dy
                light = lang.exp(-power)
                alpha = lang.min(real(most), opacities[i] * light)
                if power >= real(0.0) and alpha >= real(faintest):
                    clear = real(1.0) / (real(1.0) - alpha)
                    through *= clear
                    weight = alpha * through
                    gain = real(0.0)
                    for c in lang.static(range(channels)):
                        gain += colors[i, c] * cotangent[c]
                        grad_colors[i, c] += weight * cotangent[c]
                    slope = through * gain - behind * clear
                    behind += weight * gain
                    if opacities[i] * light < real(most):
                        grad_opacities[i] += slope * light
                        pull = -slope * alpha
                        grad_conics[i, 0] += real(0.5) * pull * dx * dx
                        grad_conics[i, 1] += pull * dx * dy
                        grad_conics[i, 2] += real(0.5) * pull * dy * dy
                        grad_means2d[i, 0] += pull * (conics[i, 0] * dx + conics[i, 1] * dy)
                        grad_means2d[i, 1] += pull * (conics[i, 1] * dx + conics[i, 2] * dy)

    return blend_back_to_front


def blend_front_to_back(lang: ModuleType, *, fp: str, channels: int, tile_size: int) -> Any:
    """Build the gradient of `kernels.gaussian_blend`, from each pixel's first Gaussian to its last."""
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    most, faintest, opaque = MOST, FAINTEST, OPAQUE

    @lang.kernel
    def blend_front_to_back(
        means2d: array,
        conics: array,
        colors: array,
        opacities: array,
        ids: array,
        starts: array,
        image: array,
        left: array,
        grad_image: array,
        grad_left: array,
        grad_means2d: array,
        grad_conics: array,
        grad_colors: array,
        grad_opacities: array,
    ):
        for v, y, x in lang.ndrange(left.shape[0], left.shape[1], left.shape[2]):
            row = v * (left.shape[1] // tile_size) + y // tile_size
            tile = row * (left.shape[2] // tile_size) + x // tile_size
            cotangent = lang.Vector([0.0] * channels, dt=real)
            behind = left[v, y, x] * grad_left[v, y, x]
            for c in lang.static(range(channels)):
                cotangent[c] = grad_image[v, y, x, c]
                behind += image[v, y, x, c] * cotangent[c]
            through = real(1.0)
            for k in range(starts[tile], starts[tile + 1]):
                i = ids[k]
                dx, dy = means2d[i, 0] - (x + real(0.5)), means2d[i, 1] - (y + real(0.5))
                power = real(0.5) * (conics[i, 0] * dx * dx + conics[i, 2] * dy * dy) + conics[i, 1] * dx * dy
                light = lang.exp(-power)
                alpha = lang.min(real(most), opacities[i] * light)
                if power >= real(0.0) and alpha >= real(faintest):
                    after = through * (real(1.0) - alpha)
                    if after <= real(opaque):
                        break
                    weight = alpha * through
                    gain = real(0.0)
                    for c in lang.static(range(channels)):
                        gain += colors[i, c] * cotangent[c]
                        grad_colors[i, c] += weight * cotangent[c]
                    behind -= weight * gain
                    slope = through * gain - behind / (real(1.0) - alpha)
                    if opacities[i] * light < real(most):
                        grad_opacities[i] += slope * light
                        pull = -slope * alpha
                        grad_conics[i, 0] += real(0.5) * pull * dx * dx
                        grad_conics[i, 1] += pull * dx * dy
                        grad_conics[i, 2] += real(0.5) * pull * dy * dy
                        grad_means2d[i, 0] += pull * (conics[i, 0] * dx + conics[i, 1] * dy)
                        grad_means2d[i, 1] += pull * (conics[i, 1] * dx + conics[i, 2] * dy)
                    through = after

    return blend_front_to_back


def projection_backward(lang: ModuleType, *, fp: str) -> Any:
    """Build the gradient of `kernels.gaussian_projection` by the Gaussians, for pinhole cameras.

    With Q the conic and G its cotangent, that of the covariance in the image is -Q G Q.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    camera_point, spread = build_projection(lang, fp=fp, camera_model="pinhole")

    @lang.kernel
    def projection_backward(
        means: array,
        covars: array,
        viewmats: array,
        intrinsics: array,
        images: array,
        rows: array,
        radii: array,
        width: real,
        height: real,
        conics: array,
        compensations: array,
        grad_means2d: array,
        grad_depths: array,
        grad_conics: array,
        grad_compensations: array,
        grad_means: array,
        grad_covars: array,
    ):
        for p in range(images.shape[0]):
            if radii[p, 0] > 0:
                v, g = images[p], rows[p]
                x, y, z = camera_point(means, viewmats, v, g)
                fx, fy = intrinsics[v, 0, 0], intrinsics[v, 1, 1]
                cx, cy = intrinsics[v, 0, 2], intrinsics[v, 1, 2]
                near = real(1.0) / z
                # The covariance in the image, of its conic.
                q0, q1, q2 = conics[p, 0], conics[p, 1], conics[p, 2]
                g0, g1, g2 = grad_conics[p, 0], real(0.5) * grad_conics[p, 1], grad_conics[p, 2]
                r00, r01 = q0 * g0 + q1 * g1, q0 * g1 + q1 * g2
                r10, r11 = q1 * g0 + q2 * g1, q1 * g1 + q2 * g2
                ga = -(r00 * q0 + r01 * q1)
                gb = -2 * (r00 * q1 + r01 * q2)
                gc = -(r10 * q1 + r11 * q2)
                if compensations[p] > real(0.0):
                    a, b, c = spread(covars, viewmats, intrinsics, v, g, x, y, z, width, height)
                    # The area is 1 / det Q, and with it the variances after eps2d are q2 area and q0 area.
                    share = q0 * q2 - q1 * q1
                    slope = real(0.5) * grad_compensations[p] / compensations[p] * share
                    lost = -slope * compensations[p] * compensations[p]
                    ga += slope * c + lost * q0 / share
                    gc += slope * a + lost * q2 / share
                    gb -= 2 * b * (slope + lost)
                # Rows of the projection's derivative, in the camera and in the world.
                side_x, side_y = real(0.15) * width / fx, real(0.15) * height / fy
                across = lang.min(lang.max(x * near, -cx / fx - side_x), (width - cx) / fx + side_x)
                down = lang.min(lang.max(y * near, -cy / fy - side_y), (height - cy) / fy + side_y)
                ux, uz, wy, wz = fx * near, -fx * across * near, fy * near, -fy * down * near
                u0 = viewmats[v, 0, 0] * ux + viewmats[v, 2, 0] * uz
                u1 = viewmats[v, 0, 1] * ux + viewmats[v, 2, 1] * uz
                u2 = viewmats[v, 0, 2] * ux + viewmats[v, 2, 2] * uz
                w0 = viewmats[v, 1, 0] * wy + viewmats[v, 2, 0] * wz
                w1 = viewmats[v, 1, 1] * wy + viewmats[v, 2, 1] * wz
                w2 = viewmats[v, 1, 2] * wy + viewmats[v, 2, 2] * wz
                grad_covars[g, 0] += ga * u0 * u0 + gb * u0 * w0 + gc * w0 * w0
                grad_covars[g, 1] += 2 * ga * u0 * u1 + gb * (u0 * w1 + u1 * w0) + 2 * gc * w0 * w1
                grad_covars[g, 2] += 2 * ga * u0 * u2 + gb * (u0 * w2 + u2 * w0) + 2 * gc * w0 * w2
                grad_covars[g, 3] += ga * u1 * u1 + gb * u1 * w1 + gc * w1 * w1
                grad_covars[g, 4] += 2 * ga * u1 * u2 + gb * (u1 * w2 + u2 * w1) + 2 * gc * w1 * w2
                grad_covars[g, 5] += ga * u2 * u2 + gb * u2 * w2 + gc * w2 * w2
                # What the rows depend on, by m = 2 ga u + gb w and n = gb u + 2 gc w.
                c00, c01, c02 = covars[g, 0], covars[g, 1], covars[g, 2]
                c11, c12, c22 = covars[g, 3], covars[g, 4], covars[g, 5]
                m0, m1, m2 = 2 * ga * u0 + gb * w0, 2 * ga * u1 + gb * w1, 2 * ga * u2 + gb * w2
                n0, n1, n2 = gb * u0 + 2 * gc * w0, gb * u1 + 2 * gc * w1, gb * u2 + 2 * gc * w2
                p0, p1, p2 = (
                    c00 * m0 + c01 * m1 + c02 * m2,
                    c01 * m0 + c11 * m1 + c12 * m2,
                    c02 * m0 + c12 * m1 + c22 * m2,
                )
                s0, s1, s2 = (
                    c00 * n0 + c01 * n1 + c02 * n2,
                    c01 * n0 + c11 * n1 + c12 * n2,
                    c02 * n0 + c12 * n1 + c22 * n2,
                )
                grad_ux = viewmats[v, 0, 0] * p0 + viewmats[v, 0, 1] * p1 + viewmats[v, 0, 2] * p2
                grad_uz = viewmats[v, 2, 0] * p0 + viewmats[v, 2, 1] * p1 + viewmats[v, 2, 2] * p2
                grad_wy = viewmats[v, 1, 0] * s0 + viewmats[v, 1, 1] * s1 + viewmats[v, 1, 2] * s2
                grad_wz = viewmats[v, 2, 0] * s0 + viewmats[v, 2, 1] * s1 + viewmats[v, 2, 2] * s2
                # The center.
                gu, gw = grad_means2d[p, 0], grad_means2d[p, 1]
                to_x, to_y = gu * ux, gw * wy
                to_z = grad_depths[p] - near * (gu * ux * x + gw * wy * y)
                to_z -= near * (grad_ux * ux + grad_uz * uz + grad_wy * wy + grad_wz * wz)
                if across == x * near:
                    to_x -= grad_uz * ux * near
                    to_z += grad_uz * ux * across * near
                if down == y * near:
                    to_y -= grad_wz * wy * near
                    to_z += grad_wz * wy * down * near
                for d in lang.static(range(3)):
                    grad_means[g, d] += viewmats[v, 0, d] * to_x + viewmats[v, 1, d] * to_y + viewmats[v, 2, d] * to_z

    return projection_backward


def covariance_backward(lang: ModuleType, *, fp: str) -> Any:
    """Build the gradient of `kernels.gaussian_covariance`. With M = R S, and G the cotangent of M M^T, that of M is 2 G
    M.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    rotation = build_rotation(lang, fp=fp)

    @lang.kernel
    def covariance_backward(quats: array, scales: array, grad_covars: array, grad_quats: array, grad_scales: array):
        for i in range(quats.shape[0]):
            r00, r01, r02, r10, r11, r12, r20, r21, r22 = rotation(quats, i)
            g00, g01, g02 = 2 * grad_covars[i, 0], grad_covars[i, 1], grad_covars[i, 2]
            g11, g12, g22 = 2 * grad_covars[i, 3], grad_covars[i, 4], 2 * grad_covars[i, 5]
            # H = 2 G R, so that the cotangent of M is H S and that of R is H S S.
            h00, h10, h20 = (
                g00 * r00 + g01 * r10 + g02 * r20,
                g01 * r00 + g11 * r10 + g12 * r20,
                g02 * r00 + g12 * r10 + g22 * r20,
            )
            h01, h11, h21 = (
                g00 * r01 + g01 * r11 + g02 * r21,
                g01 * r01 + g11 * r11 + g12 * r21,
                g02 * r01 + g12 * r11 + g22 * r21,
            )
            h02, h12, h22 = (
                g00 * r02 + g01 * r12 + g02 * r22,
                g01 * r02 + g11 * r12 + g12 * r22,
                g02 * r02 + g12 * r12 + g22 * r22,
            )
            a, b, c = scales[i, 0], scales[i, 1], scales[i, 2]
            grad_scales[i, 0] = a * (r00 * h00 + r10 * h10 + r20 * h20)
            grad_scales[i, 1] = b * (r01 * h01 + r11 * h11 + r21 * h21)
            grad_scales[i, 2] = c * (r02 * h02 + r12 * h12 + r22 * h22)
            a, b, c = a * a, b * b, c * c
            h00, h10, h20, h01, h11, h21 = a * h00, a * h10, a * h20, b * h01, b * h11, b * h21
            h02, h12, h22 = c * h02, c * h12, c * h22
            w, x, y, z = quats[i, 0], quats[i, 1], quats[i, 2], quats[i, 3]
            shrink = real(1.0) / lang.sqrt(w * w + x * x + y * y + z * z)
            w, x, y, z = w * shrink, x * shrink, y * shrink, z * shrink
            gw = 2 * (x * (h21 - h12) + y * (h02 - h20) + z * (h10 - h01))
            gx = 2 * (y * (h10 + h01) + z * (h20 + h02) + w * (h21 - h12)) - 4 * x * (h11 + h22)
            gy = 2 * (x * (h10 + h01) + z * (h21 + h12) + w * (h02 - h20)) - 4 * y * (h00 + h22)
            gz = 2 * (x * (h20 + h02) + y * (h21 + h12) + w * (h10 - h01)) - 4 * z * (h00 + h11)
            along = w * gw + x * gx + y * gy + z * gz
            grad_quats[i, 0], grad_quats[i, 1] = (gw - along * w) * shrink, (gx - along * x) * shrink
            grad_quats[i, 2], grad_quats[i, 3] = (gy - along * y) * shrink, (gz - along * z) * shrink

    return covariance_backward
