"""Regularization of radiance fields: penalties on the weights and opacities along rays."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .. import kernels
from ._ops import get_op, register_maker
from ._packed import check_floats, check_rays, check_shapes
from ._rule import Rule, run, steady

_FAINTEST = 1e-10


def distortion_loss(weights: Tensor, t: Tensor, steps: Tensor, rays: Tensor, *, engine: str | None = None) -> Tensor:
    """Compute the spread of the weights along each ray, the distortion loss of mip-NeRF 360.

        loss = sum over i, j of weight_i weight_j |t_i - t_j| + 1/3 sum of weight_i^2 step_i

    Barron et al. 2022, equation 15. It concentrates the weights of a ray, and so removes fog and floaters. Computed in
    linear time.

    Args:
        weights: (s), from `composite`. Differentiable, as are t and the steps; twice in plain calls.
        t: (s), midpoints of the samples, ascending along a ray.
        steps: (s), lengths of the samples.
        rays: (n, 2), integers: the start and the count of each ray's samples; rows must not overlap.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        (n), 0 for a ray without samples, in the unit of t.

    Raises:
        ArgumentError: an argument is not a tensor.
        ShapeError: they do not fit each other, or `rays` points outside the samples (checked on the CPU only).
        DtypeError: tensors are not all float32 or all float64.

    Example:
        >>> weights, t, steps = torch.tensor([[0.5, 0.5], [1.0, 3.0], [1.0, 1.0]])
        >>> ts.render.distortion_loss(weights, t, steps, rays=torch.tensor([[0, 2]]))
        tensor([1.1667])
    """
    floats = {"weights": weights, "t": t, "steps": steps}
    check_floats("distortion_loss", floats)
    size = (weights.numel(),)
    check_shapes("distortion_loss", {name: (tensor, "[s]", size) for name, tensor in floats.items()})
    where = check_rays("distortion_loss", rays, len(weights))
    (loss,) = run(get_op("distortion_loss", engine, weights), weights, t, steps, where)
    return loss


def opacity_penalty(opacity: Tensor) -> Tensor:
    """Compute a penalty on half-transparent rays: -o log o for each opacity o, which is 0 for opacities 0 and 1.

    The trainers of ngp_pl and taichi-nerfs use the same. If o is below 1e-10, the logarithm is that of 1e-10, so
    that the gradient of an empty ray is finite.

    Args:
        opacity: of any shape, from `composite`. Differentiable.

    Returns:
        Shaped like the opacity.

    Example:
        >>> ts.render.opacity_penalty(torch.tensor([0.25, 0.5]))
        tensor([0.3466, 0.3466])
    """
    return -opacity * opacity.clamp(min=_FAINTEST).log()


def entropy_penalty(weights: Tensor, rays: Tensor, *, faintest: float = 1e-3, engine: str | None = None) -> Tensor:
    """Compute the entropy of the distribution of weights along each ray, as in InfoNeRF (Kim et al. 2022, equation 5).

        p_i = weight_i / sum of the ray's weights
        penalty = -sum of p_i log p_i

    It is low if a ray meets one surface. InfoNeRF divides alphas by their sum; with weights, hidden samples do not
    count. If p is below 1e-10, the logarithm is that of 1e-10.

    Args:
        weights: (s), not negative, from `composite`. Differentiable, twice in plain calls.
        rays: (n, 2), integers: the start and the count of each ray's samples; rows must not overlap.
        faintest: a ray whose weights sum to this or less has penalty 0.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        (n), in nats. Raises the same errors as `distortion_loss`.

    Example:
        >>> ts.render.entropy_penalty(torch.tensor([0.25, 0.25]), torch.tensor([[0, 2]]))
        tensor([0.6931])
    """
    check_floats("entropy_penalty", {"weights": weights})
    check_shapes("entropy_penalty", {"weights": (weights, "[s]", (weights.numel(),))})
    where = check_rays("entropy_penalty", rays, len(weights))
    (entropies,) = run(
        get_op("entropy_penalty", engine, weights), weights, where, faintest=max(float(faintest), _FAINTEST)
    )
    return entropies


@register_maker("distortion_loss")
def _make_distortion_rule(lang: Any, fp: str) -> Rule:
    distortion = kernels.distortion(lang, fp=fp)
    arrays = "weights[s], t[s], steps[s], segments rays[n, 2]: i32"
    value = steady(f"{arrays} -> loss[n]", distortion.value, adjoint="source", name="distortion_loss")
    slopes = "slope_weights[s], slope_t[s], slope_steps[s]"
    pull = steady(f"{arrays}, c[n] -> {slopes}", distortion.pull, adjoint="source", name="distortion_loss_gradients")
    return Rule(value, lambda asked: (*pull(*asked.inputs, asked.cotangent(0)), None))


@register_maker("entropy_penalty")
def _make_entropy_rule(lang: Any, fp: str) -> Rule:
    entropy = kernels.entropy(lang, fp=fp)
    arrays = "weights[s], segments rays[n, 2]: i32"
    value = steady(f"{arrays} -> entropy[n]", entropy.value, adjoint="source", name="entropy_penalty")
    pull = steady(f"{arrays}, c[n] -> slope[s]", entropy.pull, adjoint="source", name="entropy_penalty_gradient")
    return Rule(value, lambda asked: (pull(*asked.inputs, asked.cotangent(0), **asked.options), None))
