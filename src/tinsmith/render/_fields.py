"""Functions around the network of a radiance field: an activation of densities, a contraction of unbounded space."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._errors import ShapeError, refusal
from ..torch_side import Layer, one_node

_STEEPEST = 15.0
"""The gradient of `trunc_exp` is exp(x) up to this x, as in instant-ngp; exp(15) is 3.3 million."""


class _TruncatedExp(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return cotangents[0] * x.clamp(max=_STEEPEST).exp()

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return tangents[0] * x.clamp(max=_STEEPEST).exp()


def trunc_exp(x: Tensor) -> Tensor:
    """Compute exp(x) with a clamped gradient: the activation of densities in instant-ngp.

        y = exp(x)
        dy/dx := exp(min(x, 15))

    Args:
        x: of any shape and floating dtype. Differentiable, by this rule.

    Returns:
        Shaped like `x`. The value is not clamped.

    Example:
        >>> x = torch.tensor([0.0, 20.0], requires_grad=True)
        >>> ts.render.trunc_exp(x).sum().backward()
        >>> x.grad.log()
        tensor([ 0., 15.])
    """
    return _TruncatedExp.apply(x)


class TruncExp(Layer):
    """A torch module that applies `trunc_exp`.

    Example:
        >>> ts.render.TruncExp()(torch.zeros(2))
        tensor([1., 1.])
    """

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        return trunc_exp(x)


def contract(x: Tensor) -> Tensor:
    """Map unbounded space to a ball of radius 2: the contraction of mip-NeRF 360 (Barron et al. 2022, equation 10).

        y = x                            where |x| <= 1
        y = (2 - 1 / |x|) x / |x|        elsewhere

    Args:
        x: (..., d), positions in units of the inner ball's radius. Differentiable.

    Returns:
        Shaped like `x`, with |y| < 2 up to rounding.

    Raises:
        ShapeError: `x` has no dims.

    Example:
        >>> ts.render.contract(torch.tensor([[0.5, 0.0, 0.0], [4.0, 0.0, 0.0]]))
        tensor([[0.5000, 0.0000, 0.0000],
                [1.7500, 0.0000, 0.0000]])
    """
    # Far outside, the square of |x| is not finite.
    unit = x.detach().abs().sum(-1, keepdim=True).clamp(min=1)
    squared = _squared_length("contract", x / unit)
    is_outside = squared * unit * unit > 1
    # Inside, |x| is replaced by 1 before the root: `where` would propagate NaN gradients from the branch not chosen.
    length = torch.where(is_outside, torch.where(is_outside, squared, 1.0).sqrt() * unit, 1.0)
    return x / length * (2 - 1 / length)


def uncontract(y: Tensor) -> Tensor:
    """Invert `contract`.

        x = y                            where |y| <= 1
        x = y / (|y| (2 - |y|))          elsewhere

    Args:
        y: (..., d), within the ball of radius 2. Differentiable.

    Returns:
        Shaped like `y`. On the sphere |y| = 2 the result is infinite; beyond it, NaN.

    Raises:
        ShapeError: `y` has no dims.

    Example:
        >>> ts.render.uncontract(torch.tensor([[0.5, 0.0, 0.0], [1.75, 0.0, 0.0]]))
        tensor([[0.5000, 0.0000, 0.0000],
                [4.0000, 0.0000, 0.0000]])
    """
    squared = _squared_length("uncontract", y)
    length = torch.where(squared > 1, squared, 1.0).sqrt()
    left = torch.where(length > 2, float("nan"), 2 - length)
    return y / (length * left)


def _squared_length(function: str, x: Tensor) -> Tensor:
    if x.ndim == 0:
        rows = [("expected", "(..., d)"), ("got", str(tuple(x.shape)))]
        raise ShapeError(refusal(f"the positions of `{function}` have no last axis", rows, "Pass a tensor of vectors."))
    return x.square().sum(-1, keepdim=True)
