"""Differentiable covariances and precisions of Gaussians."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import kernels
from .._ops import cast_to_single, get_op, register_maker
from .._packed import check_floats
from .._rule import steady
from ._checks import require_last, require_shape

_FULL = [0, 1, 2, 1, 3, 4, 2, 4, 5]
"""The index of each entry of a symmetric 3 x 3 matrix in its upper triangle."""


def quat_scale_to_covar_preci(
    quats: Tensor,
    scales: Tensor,
    compute_covar: bool = True,
    compute_preci: bool = True,
    triu: bool = False,
    *,
    engine: str | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Compute covariance and precision matrices of Gaussians from rotations and scales.

    With R the rotation of the normalized quaternion and S the diagonal of scales:

        covar = R S S R^T
        preci = the inverse of covar

    Args:
        quats: (..., 4), w x y z, of any length but 0. Differentiable.
        scales: (..., 3), standard deviations along the Gaussian's axes. Differentiable.
        compute_covar: whether to return covariances; None is returned otherwise.
        compute_preci: whether to return precisions; None is returned otherwise.
        triu: return upper triangles (xx, xy, xz, yy, yz, zz) instead of matrices.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        Covariances and precisions, each (..., 3, 3), or (..., 6) with `triu`.

    Raises:
        ShapeError: quaternions and scales do not fit each other.
        DtypeError: they are not both float32 or both float64.

    Example:
        >>> quats, scales = torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([[1.0, 2.0, 4.0]])
        >>> covar, preci = ts.render.gaussians.quat_scale_to_covar_preci(quats, scales)
        >>> covar.diagonal(dim1=1, dim2=2), preci.diagonal(dim1=1, dim2=2)
        (tensor([[ 1.,  4., 16.]]), tensor([[1.0000, 0.2500, 0.0625]]))
    """
    quats, scales = cast_to_single(quats), cast_to_single(scales)
    check_floats("quat_scale_to_covar_preci", {"quats": quats, "scales": scales})
    require_last("quat_scale_to_covar_preci", "quats", quats, "[..., 4]", (4,))
    require_shape("quat_scale_to_covar_preci", "scales", scales, "[..., 3]", (*quats.shape[:-1], 3))
    wanted = ((False, compute_covar), (True, compute_preci))
    covar, preci = (_compute_matrices(quats, scales, inverse, triu, engine) if yes else None for inverse, yes in wanted)
    return covar, preci


def _compute_matrices(quats: Tensor, scales: Tensor, inverse: bool, triu: bool, engine: str | None) -> Tensor:
    entries = get_op("gaussian_covariance", engine, quats, inverse)(quats.reshape(-1, 4), scales.reshape(-1, 3))
    if triu:
        return entries.view(*quats.shape[:-1], 6)
    return entries[:, torch.tensor(_FULL, device=entries.device)].view(*quats.shape[:-1], 3, 3)


@register_maker("gaussian_covariance")
def _make_op(lang: Any, fp: str, inverse: bool) -> Any:
    kernel = kernels.gaussian_covariance(lang, fp=fp, inverse=inverse)
    spec = "quats[n, 4], scales[n, 3] -> covars[n, 6]"
    return steady(spec, kernel, init={"covars": "empty"}, adjoint="source", name="gaussian_covariance")
