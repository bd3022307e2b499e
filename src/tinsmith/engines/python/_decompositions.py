"""Matrix decompositions by torch, with first derivatives that are finite where torch's own are not.

The order of the results and the signs of determinants are those of the engines. Columns may have other signs, since
the engines' choice depends on how they compute. The code is independent of the one that generates gradient kernels,
since it is used to test it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def evaluate_decomposition(function: str, matrix: Tensor, *, is_descending: bool = False) -> list[Tensor]:
    """Return the factors of a decomposition as differentiable functions of the matrix, such as U, S, V for `svd`.

    Args:
        function: the engines' name of the decomposition.
        matrix: a square matrix.
        is_descending: whether eigenvalues are sorted from the largest to the smallest.
    """
    with torch.no_grad():
        given = matrix.detach()
        parts = _decompose(function, given, is_descending)
    change = matrix - matrix.detach()  # 0, with the derivative of the matrix
    return [part + by for part, by in zip(parts, _TANGENTS[function](parts, change, given), strict=True)]


# Values -----------------------------------------------------------------------------------------


def _decompose(function: str, matrix: Tensor, is_descending: bool) -> list[Tensor]:
    if not matrix.isfinite().all():
        parts = _decompose(function, torch.zeros_like(matrix), is_descending)
        return [torch.full_like(part, math.nan) for part in parts]
    if function == "sym_eig":
        values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
        return [values.flip(0), vectors.flip(1)] if is_descending else [values, vectors]
    if function == "make_spd":
        values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
        return [(vectors * values.clamp_min(0)) @ vectors.mT]
    u, s, v = compute_svd(matrix)
    return [u, s, v] if function == "svd" else [u @ v.mT, (v * s) @ v.mT]


def compute_svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, S, V with the engines' signs.

    In two dims V is a rotation, and U has the reflection if there is one. In three dims both are rotations, and the
    last singular value has the sign of the determinant.
    """
    u, s, vh = torch.linalg.svd(matrix)
    v = vh.mT.contiguous()
    u, s = u.clone(), s.clone()
    if len(s) == 3:
        for turned in (u, v):
            if torch.linalg.det(turned) < 0:
                turned[:, -1] *= -1
                s[-1] *= -1
        return u, s, v
    if torch.linalg.det(v) < 0:
        v[:, -1] *= -1
        u[:, -1] *= -1
    if (torch.linalg.det(u) < 0) != (torch.linalg.det(matrix) < 0):  # of a matrix of rank 1
        u[:, -1] *= -1
    return u, s, v


# Derivatives ------------------------------------------------------------------------------------


def _differentiate_svd(parts: list[Tensor], change: Tensor, _given: Tensor) -> tuple[Tensor, ...]:
    u, s, v = parts
    inner = u.mT @ change @ v
    apart = _divide_or_zero(inner + inner.mT, s - s[:, None], s)
    together = _divide_or_zero(inner - inner.mT, s + s[:, None], s)
    return u @ (apart + together) / 2, inner.diagonal(), v @ (apart - together) / 2


def _differentiate_polar(parts: list[Tensor], change: Tensor, _given: Tensor) -> tuple[Tensor, ...]:
    r, p = parts
    w, q = torch.linalg.eigh(p)
    inner = r.mT @ change
    turn = q @ _divide_or_zero(q.mT @ (inner - inner.mT) @ q, w + w[:, None], w) @ q.mT
    return r @ turn, inner - turn @ p


def _differentiate_eigen(parts: list[Tensor], change: Tensor, _given: Tensor) -> tuple[Tensor, ...]:
    w, q = parts
    inner = q.mT @ (change + change.mT) @ q / 2
    return inner.diagonal(), q @ _divide_or_zero(inner, w - w[:, None], w)


def _differentiate_positive(_parts: list[Tensor], change: Tensor, given: Tensor) -> tuple[Tensor, ...]:
    """Differentiate `make_spd`, the projection to positive semidefinite matrices.

    In the basis of eigenvectors, an entry of the change is scaled by (max(w_i, 0) + max(w_j, 0)) / (|w_i| + |w_j|).
    """
    if not given.isfinite().all():
        return (change,)
    w, q = torch.linalg.eigh((given + given.mT) / 2)
    share = _divide_or_zero(w.clamp_min(0)[:, None] + w.clamp_min(0), w.abs()[:, None] + w.abs(), w)
    return (q @ (share * (q.mT @ (change + change.mT) @ q / 2)) @ q.mT,)


def _divide_or_zero(upper: Tensor, lower: Tensor, values: Tensor) -> Tensor:
    """Return upper / lower, or 0 where the denominator is zero up to rounding errors relative to `values`."""
    is_zero = lower.abs() <= 4 * torch.finfo(values.dtype).eps * values.abs().max()
    return torch.where(is_zero, 0.0, upper / torch.where(is_zero, 1.0, lower))


_TANGENTS = {
    "svd": _differentiate_svd,
    "polar_decompose": _differentiate_polar,
    "sym_eig": _differentiate_eigen,
    "make_spd": _differentiate_positive,
}
