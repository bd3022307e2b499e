"""The fused kernels of an array of small networks as torch operations: one launch for each pass."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import torch

from ..._errors import GradientError, refusal
from ...calls import language
from ...kernels import NetworkShape, backward_networks, forward_networks, learning_networks
from ...operation import Op, OpOptions
from ...torch_side import Family, Recipe, register_family
from ...tracing import constant_when_traced, has_legacy_batch, is_transformed
from ._layout import Layout
from ._samples import Samples

_MATRICES = 'Make the NetworkArray with way="matrices", or set `array.way = "matrices"`.'


_is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
"""Public from torch 2.7 on."""


def compute_outputs(
    layout: Layout, params: torch.Tensor, x: torch.Tensor, samples: Samples, engine: str | None
) -> torch.Tensor:
    """Evaluate the networks on their samples: [sample, n_in] to [sample, n_out]. Differentiable in `params` and `x`."""
    # Within a transform `x.requires_grad` may be false although the encoding's table needs a gradient: vmap hides it.
    # An exported program may be called with other tensors.
    of_inputs = x.requires_grad or _is_exporting() or (not torch.compiler.is_compiling() and is_transformed())
    op = _OPS[_build_forward_op(engine, x.device, layout.whole, of_inputs)]
    return op(x, layout.convert_params(params), *samples)


def compute_losses(
    layout: Layout,
    loss: str,
    params: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    samples: Samples,
    engine: str | None,
) -> torch.Tensor:
    """Compute the mean loss of each network, [cell], and its gradient in the same launch.

    Differentiable in `params`, once.
    """
    op = _OPS[_build_learning_op(engine, x.device, layout.whole, loss)]
    return _LossWithGradient.apply(layout.convert_params(params), x, target, samples, op)


class _LossWithGradient(torch.autograd.Function):
    """The autograd Function of the losses. Its forward pass also computes the gradient; the backward pass scales it."""

    @staticmethod
    def forward(ctx: Any, params: torch.Tensor, x: torch.Tensor, target: torch.Tensor, samples: Samples, op: Op) -> Any:
        results: Any = op(x, target, params, *samples)
        ctx.save_for_backward(params, x, target)
        ctx.samples, ctx.op, ctx.slopes = samples, op, [results.slopes]
        return results.losses

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (grad_losses,), (params, x, target) = gradients, ctx.saved_tensors
        with torch.no_grad():
            if ctx.slopes:
                slopes = ctx.slopes.pop()
            else:
                # A second backward pass of a retained graph: the gradient was given away by the first, so compute it
                # again. Detached, because within a transform the op would generate its own gradient, in minutes.
                slopes = ctx.op(x.detach(), target.detach(), params.detach(), *ctx.samples).slopes
            each = slopes.view(len(grad_losses), -1)
            if has_legacy_batch(gradients) or is_transformed():  # a batch of cotangents
                slopes = (each * grad_losses[:, None]).view(slopes.shape)
            else:
                each.mul_(grad_losses[:, None])  # in place: a copy would need half as much memory again
        return _OnceDifferentiable.apply(slopes, params) if torch.is_grad_enabled() else slopes, None, None, None, None


class _OnceDifferentiable(torch.autograd.Function):
    """The identity on a gradient whose second derivative is not available: its backward pass raises GradientError."""

    @staticmethod
    def forward(ctx: Any, slopes: torch.Tensor, params: torch.Tensor) -> torch.Tensor:
        return slopes.clone()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        raise GradientError(refusal("the kernels of NetworkArray.loss have no second derivatives", remedy=_MATRICES))


# The ops by engine, shape and kind. Functions return keys, which a tracer treats as constants, rather than ops.
_Key = tuple[str, NetworkShape, str]
_OPS: dict[_Key, Op] = {}


@constant_when_traced
def _build_forward_op(engine: str | None, device: torch.device, shape: NetworkShape, of_inputs: bool) -> _Key:
    lang = language(engine, device)
    key = (lang.__name__, shape, "x, params" if of_inputs else "params")
    if key not in _OPS:
        backward = backward_networks(lang, shape, of_inputs=of_inputs)
        spec = f"x[s, {shape.n_in}], {_common(shape)} -> y[s, {shape.n_out}]"
        detached = () if of_inputs else ("x",)
        init = {"work": "workspace", "y": "empty", "grad_params": "empty"}
        init |= {"grad_x": "empty"} if of_inputs else {}
        options = OpOptions(
            scratch=_work(shape),
            init=init,
            backward=backward,
            detached=detached,
            simd=True,
            steady=True,
            otherwise=_MATRICES,
            recipe=Recipe("networks", key[0], (key[2], *astuple(shape))),
        )
        _OPS[key] = Op([forward_networks(lang, shape)], spec, options)
    return key


@constant_when_traced
def _build_learning_op(engine: str | None, device: torch.device, shape: NetworkShape, loss: str) -> _Key:
    lang = language(engine, device)
    key = (lang.__name__, shape, loss)
    if key not in _OPS:
        given = f"x[s, {shape.n_in}], target[s, {shape.n_out}], {_common(shape)}"
        spec = f"{given} -> losses[b - 1], slopes[{_params(shape)}]"
        init = {"work": "workspace", "losses": "empty", "slopes": "empty"}
        recipe = Recipe("losses of networks", key[0], (loss, *astuple(shape)))
        options = OpOptions(scratch=_work(shape), init=init, simd=True, steady=True, recipe=recipe)
        _OPS[key] = Op([learning_networks(lang, shape, loss)], spec, options)
    return key


# For graphs -------------------------------------------------------------------------------------
def _find_forward(engine: str, device: torch.device, _dtype: torch.dtype, inputs: str, *shape: Any) -> Op:
    return _OPS[_build_forward_op(engine, device, NetworkShape(*shape), inputs == "x, params")]


def _find_learning(engine: str, device: torch.device, _dtype: torch.dtype, loss: str, *shape: Any) -> Op:
    return _OPS[_build_learning_op(engine, device, NetworkShape(*shape), loss)]


def _count_forward(call: Any, active: frozenset[str] | None, _inputs: str, *shape: Any) -> int:
    first, all_layers = _count_products(call, *shape)
    if active is None:
        return all_layers
    return all_layers * ("params" in active) + all_layers - first * ("x" not in active)


def _count_learning(call: Any, _active: frozenset[str] | None, _loss: str, *shape: Any) -> int:
    first, all_layers = _count_products(call, *shape)
    return 3 * all_layers - first


def _count_products(call: Any, *shape: Any) -> tuple[int, int]:
    """Count the floating-point operations of the first layer's and of all matrix products, as torch's counter does."""
    one = NetworkShape(*shape)
    samples = call.shapes[0][0] * (1 if call.batch is None else call.batch)
    first = 2 * samples * one.n_in * one.width
    return first, first + 2 * samples * one.width * ((one.hidden - 1) * one.width + one.n_out)


register_family("networks", Family(_find_forward, _count_forward))
register_family("losses of networks", Family(_find_learning, _count_learning))


def _common(shape: NetworkShape) -> str:
    return f"params[{_params(shape)}], start[b]: i32, first[t]: i32"


def _params(shape: NetworkShape) -> str:
    return f"c, {shape.rows}, {shape.width}" if shape.by_sample else f"v, {shape.lanes}"


def _work(shape: NetworkShape) -> str:
    return f"work[(t - 1) * {shape.space}, {shape.lanes}]"
