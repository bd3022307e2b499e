"""Covariances of 3-D Gaussians, from rotations and scales. The reference is `reference.gaussian_covariance`."""

from types import ModuleType
from typing import Any

LARGEST = {"f32": 3.4e38, "f64": 1.7e308}
"""The number above which a squared length or a sum counts as infinite, by float type.

It is slightly below the largest float, since fast arithmetic may optimize comparisons with infinity away.
"""


def gaussian_covariance(lang: ModuleType, *, fp: str, inverse: bool) -> Any:
    """Build the kernel of covariances: quats [n, 4] (w, x, y, z), scales [n, 3] -> covars [n, 6].

    With R the rotation of the normalized quaternion and S the diagonal matrix of scales, the covariance is R S S R^T,
    whose upper triangle is written (xx, xy, xz, yy, yz, zz). With `inverse`, its inverse, the precision, is written.

    A Gaussian without a finite covariance (a zero quaternion, an infinite or NaN number, a scale whose square is too
    large, a zero scale with `inverse`) gets NaN, and zero gradients. Such rows pad batches. They are in no image, but a
    cotangent of 0 times the infinite derivative of their covariance would be NaN.
    """
    array = lang.types.ndarray()
    real = getattr(lang, fp)
    rotation = build_rotation(lang, fp=fp)
    largest = LARGEST[fp]

    @lang.kernel
    def gaussian_covariance(quats: array, scales: array, covars: array):
        for i in range(quats.shape[0]):
            length2 = real(0.0)
            for k in lang.static(range(4)):
                length2 += quats[i, k] * quats[i, k]
            a, b, c = scales[i, 0] * scales[i, 0], scales[i, 1] * scales[i, 1], scales[i, 2] * scales[i, 2]
            is_finite = length2 > real(0.0) and length2 <= real(largest) and a + b + c <= real(largest)
            if lang.static(inverse):
                is_finite = is_finite and a > real(0.0) and b > real(0.0) and c > real(0.0)
            if is_finite:
                r00, r01, r02, r10, r11, r12, r20, r21, r22 = rotation(quats, i)
                if lang.static(inverse):
                    a, b, c = real(1.0) / a, real(1.0) / b, real(1.0) / c
                covars[i, 0] = a * r00 * r00 + b * r01 * r01 + c * r02 * r02
                covars[i, 1] = a * r00 * r10 + b * r01 * r11 + c * r02 * r12
                covars[i, 2] = a * r00 * r20 + b * r01 * r21 + c * r02 * r22
                covars[i, 3] = a * r10 * r10 + b * r11 * r11 + c * r12 * r12
                covars[i, 4] = a * r10 * r20 + b * r11 * r21 + c * r12 * r22
                covars[i, 5] = a * r20 * r20 + b * r21 * r21 + c * r22 * r22
            else:
                for k in lang.static(range(6)):
                    covars[i, k] = lang.math.nan

    return gaussian_covariance


def build_rotation(lang: ModuleType, *, fp: str) -> Any:
    """Build the function `rotation(quats, i)`: the rotation matrix of the normalized quaternion, row by row."""
    real = getattr(lang, fp)

    @lang.func
    def rotation(quats: lang.template(), i):
        w, x, y, z = quats[i, 0], quats[i, 1], quats[i, 2], quats[i, 3]
        shrink = real(1.0) / lang.sqrt(w * w + x * x + y * y + z * z)
        w, x, y, z = w * shrink, x * shrink, y * shrink, z * shrink
        r00, r01, r02 = real(1.0) - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
        r10, r11, r12 = 2 * (x * y + w * z), real(1.0) - 2 * (x * x + z * z), 2 * (y * z - w * x)
        r20, r21, r22 = 2 * (x * z - w * y), 2 * (y * z + w * x), real(1.0) - 2 * (x * x + y * y)
        return r00, r01, r02, r10, r11, r12, r20, r21, r22

    return rotation
