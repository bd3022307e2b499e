"""`weights_from_alphas`: weights of samples along rays from alphas instead of densities."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .._errors import ShapeError, refusal
from ._packed import check_floats, dense_rays
from ._segments import exclusive_prod


class AlphaWeights(NamedTuple):
    """The weights and the transmittance of samples, as returned by `weights_from_alphas`.

    Attributes:
        weights: shaped like the alphas.
        transmittance: shaped like the alphas: the part of the light that reaches each sample.

    Example:
        >>> ts.render.weights_from_alphas(torch.tensor([[0.5, 0.5]])).transmittance
        tensor([[1.0000, 0.5000]])
    """

    weights: Tensor
    transmittance: Tensor


def weights_from_alphas(alphas: Tensor, rays: Tensor | None = None, *, engine: str | None = None) -> AlphaWeights:
    """Compute weights and transmittance of the samples along rays from their alphas.

    For the samples i of a ray, front to back:

        T_i = product over j < i of (1 - alpha_j)
        weight_i = T_i alpha_i

    `accumulate` sums colors with these weights. For densities, `composite` does both at once.

    Args:
        alphas: (s), or dense (n, k), between 0 and 1. Differentiable, twice in plain calls, also at alphas of 1.
        rays: (n, 2), integers: the start and the count of each ray's samples; rows must not overlap. None for the
            dense form.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `AlphaWeights(weights, transmittance)`, both shaped like the alphas; 0 for samples that belong to no ray.

    Raises:
        ArgumentError: an argument is not a tensor.
        ShapeError: tensors do not fit each other, or `rays` points outside the samples (checked on the CPU only).
        DtypeError: `alphas` is neither float32 nor float64.

    Example:
        >>> ts.render.weights_from_alphas(torch.tensor([0.5, 0.5, 1.0]), torch.tensor([[0, 2], [2, 1]])).weights
        tensor([0.5000, 0.2500, 1.0000])
    """
    check_floats("weights_from_alphas", {"alphas": alphas})
    axes, ndim = ("[n, k]", 2) if rays is None else ("[s]", 1)
    if alphas.ndim != ndim:
        rows = [("alphas", str(tuple(alphas.shape)), f"should be {axes}")]
        remedy = "Pass packed samples, [s], with `rays`, or dense samples, [n, k], without `rays`."
        raise ShapeError(refusal("`alphas` of `weights_from_alphas` has the wrong shape", rows, remedy))
    where = dense_rays(alphas.shape[0], alphas.shape[1], alphas.device) if rays is None else rays
    through = exclusive_prod(1 - alphas.reshape(-1), where, engine=engine).view(alphas.shape)
    return AlphaWeights(through * alphas, through)
