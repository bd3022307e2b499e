"""Compositing: color, opacity and depth of rays from samples that emit and absorb light.

Samples have densities, or alphas (`weights_from_alphas`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from .. import kernels
from .._errors import ArgumentError, ShapeError, refusal
from ..operation import Op
from ..reference import Composited
from ._ops import cast_to_single, get_op, register_maker
from ._packed import check_floats, check_rays, check_shapes, dense_rays
from ._rule import Asked, Rule, run, steady
from ._segments import accumulate, exclusive_prod

_UNROLLED = 16
"""Most channels that the kernel keeps in registers; more are summed by `accumulate`."""
_SAMPLES = "densities[s], colors[m], t[s], steps[s], segments rays[n, 2]: i32"
"""The inputs in the ops' specs. `colors` is flat, with the channels of a sample next to each other: m = s c."""
_SEEN = "color[n, {c}], depth[n], left[n], weights[s]"


def composite(
    densities: Tensor,
    colors: Tensor,
    t: Tensor,
    steps: Tensor,
    rays: Tensor | None = None,
    *,
    background: Tensor | None = None,
    threshold: float = 0.0,
    engine: str | None = None,
) -> Composited:
    """Composite samples that emit and absorb light into a color, an opacity and a depth for each ray.

    For the samples i of a ray, front to back, with T_i the transmittance of sample i:

        alpha_i = 1 - exp(-density_i step_i)
        T_i = product over j < i of (1 - alpha_j)
        weight_i = T_i alpha_i                  0 where T_i < threshold
        color = sum of weight_i color_i + (1 - opacity) background
        opacity = sum of weight_i
        depth = sum of weight_i t_i

    Samples are packed, those of a ray next to each other, with `rays`; or dense, with the same number on each ray.
    Differentiable in all floating tensors, twice; where a ray ends is not differentiated. Only arguments and
    outputs are saved for the backward pass.

    Args:
        densities: (s), or dense (n, k), per unit of length, not negative.
        colors: (s, c) or (n, k, c), any number of channels, such as features.
        t: shaped like `densities`; positions of the samples along their ray.
        steps: shaped like `densities`; lengths of the samples.
        rays: (n, 2), integers: the start and the count of each ray's samples; rows must not overlap. None for the
            dense form.
        background: (c) or (n, c), the color behind all samples; None for 0.
        threshold: a ray ends once its transmittance is below this: later samples have weight 0 and gradient 0.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `Composited(color, opacity, depth, weights)`: (n, c), (n), (n), and the shape of the densities. A ray without
        samples has opacity 0, depth 0 and the background's color. The depth is not divided by the opacity. Samples
        that belong to no ray have weight 0.

    Raises:
        ArgumentError: an argument is not a tensor, or the threshold is NaN.
        ShapeError: tensors do not fit each other, or `rays` points outside the samples (checked on the CPU only).
        DtypeError: tensors are not all float32 or all float64.

    Example:
        >>> half = torch.full((1, 2), 2.0).log()
        >>> ts.render.composite(half, torch.ones(1, 2, 3), torch.tensor([[1.0, 2.0]]), torch.ones(1, 2)).weights
        tensor([[0.5000, 0.2500]])
    """
    floats = {"densities": densities, "colors": colors, "t": t, "steps": steps}
    if background is not None:
        floats["background"] = background
    return _composite_with("composite", floats, rays, threshold, engine)


def composite_alphas(
    alphas: Tensor,
    colors: Tensor,
    t: Tensor,
    rays: Tensor | None = None,
    *,
    background: Tensor | None = None,
    threshold: float = 0.0,
    engine: str | None = None,
) -> Composited:
    """Composite samples with alphas, instead of densities, into a color, an opacity and a depth for each ray.

    For the samples i of a ray, front to back, with T_i the transmittance of sample i:

        T_i = product over j < i of (1 - alpha_j)
        weight_i = T_i alpha_i                  0 where T_i < threshold
        color = sum of weight_i color_i + (1 - opacity) background
        opacity = sum of weight_i
        depth = sum of weight_i t_i

    This is nerfacc's `rendering` with `rgb_alpha_fn`, except that nerfacc divides the depth by the opacity. Samples are
    packed or dense, as in `composite`. Differentiable in all floating tensors, twice, also at alphas of 0 and 1; where
    a ray ends is not differentiated.

    Args:
        alphas: (s), or dense (n, k), between 0 and 1.
        colors: (s, c) or (n, k, c), any number of channels, such as features.
        t: shaped like `alphas`; positions of the samples along their ray.
        rays: (n, 2), integers: the start and the count of each ray's samples; rows must not overlap. None for the
            dense form.
        background: (c) or (n, c), the color behind all samples; None for 0.
        threshold: a ray ends once its transmittance is below this: later samples have weight 0 and gradient 0.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        `Composited(color, opacity, depth, weights)`: (n, c), (n), (n), and the shape of the alphas. A ray without
        samples has opacity 0, depth 0 and the background's color. Samples that belong to no ray have weight 0.

    Raises:
        ArgumentError: an argument is not a tensor, or the threshold is NaN.
        ShapeError: tensors do not fit each other, or `rays` points outside the samples (checked on the CPU only).
        DtypeError: tensors are not all float32 or all float64.

    Example:
        >>> half, t = torch.full((1, 2), 0.5), torch.tensor([[1.0, 2.0]])
        >>> seen = ts.render.composite_alphas(half, torch.ones(1, 2, 3), t, background=torch.zeros(3))
        >>> seen.color, seen.depth
        (tensor([[0.7500, 0.7500, 0.7500]]), tensor([1.]))
    """
    floats = {"alphas": alphas, "colors": colors, "t": t}
    if background is not None:
        floats["background"] = background
    return _composite_with("composite_alphas", floats, rays, threshold, engine)


def _composite_with(
    function: str, floats: dict[str, Tensor], rays: Tensor | None, threshold: float, engine: str | None
) -> Composited:
    """Check the arguments of `composite` or `composite_alphas`, whose name is `function`, and composite the samples.

    `floats` are the floating-point arguments by name: with densities and steps, or with alphas.
    """
    if math.isnan(threshold):
        rows = [("got", repr(threshold)), ("expected", "a number: 0 for no threshold")]
        raise ArgumentError(refusal(f"`threshold` of `{function}` is NaN", rows))
    floats = {name: cast_to_single(given) for name, given in floats.items()}
    check_floats(function, floats)
    measures = ("densities", "t", "steps") if "densities" in floats else ("alphas", "t")
    _check_shapes(function, measures, floats, rays)
    shape, device = floats["t"].shape, floats["t"].device
    if rays is None:
        where = dense_rays(shape[0], shape[1], device)
    else:
        where = check_rays(function, rays, shape[0])
    flat = [floats[name].reshape(-1) for name in measures]
    color, depth, left, weights = _composite_flat(flat, floats["colors"].flatten(0, -2), where, threshold, engine)
    if "background" in floats:
        color = color + left[:, None] * floats["background"]
    return Composited(color, 1 - left, depth, weights.view(shape))


def _check_shapes(function: str, measures: Sequence[str], floats: dict[str, Tensor], rays: Tensor | None) -> None:
    """Raise ShapeError unless all arguments fit the first one of `measures`: those with one number per sample."""
    first, colors = floats[measures[0]], floats["colors"]
    axes, ndim = ("n, k", 2) if rays is None else ("s", 1)
    if first.ndim != ndim or colors.ndim != ndim + 1:
        rows = [(measures[0], str(tuple(first.shape)), f"should be [{axes}]")]
        rows += [("colors", str(tuple(colors.shape)), f"should be [{axes}, c]")]
        remedy = "Pass packed samples, [s], with `rays`, or dense samples, [n, k], without `rays`."
        raise ShapeError(refusal(f"The arguments of `{function}` have the wrong shapes", rows, remedy))
    shape, c = tuple(first.shape), colors.shape[-1]
    shapes = {name: (floats[name], f"[{axes}]", shape) for name in measures}
    shapes["colors"] = (colors, f"[{axes}, c]", (*shape, c))
    if "background" in floats:
        background = floats["background"]
        n = shape[0] if rays is None else len(rays)
        expected, words = ((c,), "[c]") if background.ndim == 1 else ((n, c), "[n, c]")
        shapes["background"] = (background, words, expected)
    check_shapes(function, shapes)


def _composite_flat(
    flat: Sequence[Tensor], colors: Tensor, rays: Tensor, threshold: float, engine: str | None
) -> tuple[Tensor, ...]:
    """Composite packed samples: return color without a background, depth, remaining transmittance, and weights.

    `flat` is (densities, t, steps) or (alphas, t), each (s). `colors` is (s, c).
    """
    if colors.shape[1] > _UNROLLED:
        _, depth, left, weights = _composite_flat(flat, colors[:, :0], rays, threshold, engine)
        return accumulate(weights, colors, rays, engine=engine), depth, left, weights
    first, t, *steps = flat
    if steps:
        rule = get_op("composite", engine, first, colors.shape[1])
        return run(rule, first, colors.flatten(), t, *steps, rays, threshold=float(threshold))
    of_alphas: Op = get_op("composite_alphas", engine, first, colors.shape[1])
    return tuple(of_alphas(first, colors.flatten(), t, first.new_empty(0), rays, threshold=float(threshold)))


@register_maker("composite")
def _make_rule(lang: Any, fp: str, channels: int) -> Rule:
    seen = _SEEN.format(c=channels)
    build = functools.partial(kernels.composite, lang, fp=fp, n_channels=channels)
    simple = build(by_weights=True, by_place=True, grouped=False)
    quick = build(by_weights=True, by_place=True, grouped=True)

    @functools.cache
    def pull(by_weights: bool, by_place: bool) -> Any:
        kernel = build(by_weights=by_weights, by_place=by_place, grouped=True).pull
        given = f"weights[s], left[n], c_color[n, {channels}], c_depth[n], c_left[n], c_weights[w]"
        place = "s" if by_place else "0"
        slopes = f"slope_densities[s], slope_colors[m], slope_t[{place}], slope_steps[{place}]"
        return steady(f"{_SAMPLES}, {given} -> {slopes}", kernel, adjoint="source", name="composite_gradients")

    return Rule(
        steady(f"{_SAMPLES} -> {seen}", simple.value, adjoint="source", name="composite"),
        functools.partial(_compute_gradients, pull),
        steady(f"{_SAMPLES} -> {seen}", quick.value, backward=quick.by_hand, name="composite"),
    )


@register_maker("composite_alphas")
def _make_alphas_op(lang: Any, fp: str, channels: int) -> Op:
    # The gradient is generated: the handwritten one for densities would have to divide by 1 - alpha, which may be 0.
    kernel = kernels.composite(
        lang, fp=fp, n_channels=channels, by_weights=True, by_place=True, grouped=False, from_alphas=True
    )
    samples = _SAMPLES.replace("steps[s]", "steps[0]")
    return steady(f"{samples} -> {_SEEN.format(c=channels)}", kernel.value, adjoint="source", name="composite_alphas")


def _compute_gradients(pull: Any, asked: Asked) -> Sequence[Tensor | None]:
    """Return the gradients of densities, colors, t, steps and rays (None) that a backward pass asks for."""
    *_, left, weights = asked.outputs
    by_weights = asked.cotangents[3] is not None
    c_weights = asked.cotangent(3) if by_weights else weights.new_empty(0)
    by_place = asked.wants[2] or asked.wants[3]
    given = (*asked.inputs, weights, left, *(asked.cotangent(j) for j in range(3)), c_weights)
    gradients = pull(by_weights, by_place)(*given, **asked.options)
    return (*(gradients if by_place else (*gradients[:2], None, None)), None)


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
