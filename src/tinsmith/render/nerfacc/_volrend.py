"""Volume rendering of samples along rays, with nerfacc's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..._errors import ArgumentError, ShapeError, refusal
from ..._integers import read_count
from .._packed import pack
from .._penalties import distortion_loss
from ._samples import resolve_rays
from ._scans import exclusive_prod, exclusive_sum


def rendering(
    t_starts: Tensor,
    t_ends: Tensor,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    rgb_sigma_fn: Callable[..., tuple[Tensor, Tensor]] | None = None,
    rgb_alpha_fn: Callable[..., tuple[Tensor, Tensor]] | None = None,
    render_bkgd: Tensor | None = None,
    expected_depths: bool = True,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Render rays through a radiance field, as nerfacc's function of this name.

    With the weights of `render_weight_from_density` or `render_weight_from_alpha`, and t the midpoints of the samples:

        color = sum of weight_i rgb_i + (1 - opacity) background
        opacity = sum of weight_i
        depth = sum of weight_i t_i / opacity

    Args:
        t_starts: the starts of the samples: packed (all_samples,), or batched (n_rays, n_samples).
        t_ends: the ends of the samples.
        ray_indices: (all_samples,), integers that never decrease: the ray of each sample. None for batched samples.
        n_rays: the number of rays, with `ray_indices`.
        rgb_sigma_fn: maps t_starts, t_ends and ray_indices to colors (..., 3) and densities (...,).
        rgb_alpha_fn: like `rgb_sigma_fn`, with alphas instead of densities. One of the two must be passed.
        render_bkgd: (3,), the color behind all samples; None for 0.
        expected_depths: False does not divide the depth by the opacity.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        Colors (n_rays, 3), opacities (n_rays, 1), depths (n_rays, 1), and a dict with "weights", "trans", "alphas",
        "rgbs" and, with `rgb_sigma_fn`, "sigmas". Differentiable in the results of the function.

    Raises:
        ArgumentError: neither function is passed, or `ray_indices` without `n_rays`.
        ShapeError: tensors do not fit each other, or a function returned another shape.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> t = torch.tensor([0.0, 1.0, 0.0])
        >>> def field(t_starts, t_ends, ray_indices):
        ...     return torch.ones(3, 3), torch.full((3,), 2.0).log()
        >>> colors, opacities, *_ = nerfacc.rendering(t, t + 1, torch.tensor([0, 0, 1]), 2, rgb_sigma_fn=field)
        >>> opacities
        tensor([[0.7500],
                [0.5000]])
    """
    if rgb_sigma_fn is None and rgb_alpha_fn is None:
        rows = [("expected", "`rgb_sigma_fn` or `rgb_alpha_fn`"), ("got", "neither")]
        remedy = "Pass one of the two functions."
        raise ArgumentError(refusal("`rendering` got no function of the radiance field", rows, remedy))
    if ray_indices is not None:
        _check_samples("rendering", t_starts=t_starts, t_ends=t_ends, ray_indices=ray_indices)
    packed = {"ray_indices": ray_indices, "n_rays": n_rays, "engine": engine}
    if rgb_sigma_fn is not None:
        rgbs, sigmas = _ask_field("rgb_sigma_fn", rgb_sigma_fn, t_starts, t_ends, ray_indices)
        weights, trans, alphas = render_weight_from_density(t_starts, t_ends, sigmas, **packed)
        extras = {"weights": weights, "alphas": alphas, "trans": trans, "sigmas": sigmas, "rgbs": rgbs}
    else:
        rgbs, alphas = _ask_field("rgb_alpha_fn", rgb_alpha_fn, t_starts, t_ends, ray_indices)
        weights, trans = render_weight_from_alpha(alphas, **packed)
        extras = {"weights": weights, "trans": trans, "rgbs": rgbs, "alphas": alphas}
    middles = (t_starts + t_ends)[..., None] / 2
    colors, opacities, depths = (
        accumulate_along_rays(weights, values, ray_indices, n_rays) for values in (rgbs, None, middles)
    )
    if expected_depths:
        depths = depths / opacities.clamp_min(torch.finfo(rgbs.dtype).eps)
    if render_bkgd is not None:
        colors = colors + render_bkgd * (1 - opacities)
    return colors, opacities, depths, extras


def render_transmittance_from_alpha(
    alphas: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    prefix_trans: Tensor | None = None,
    *,
    engine: str | None = None,
) -> Tensor:
    """Compute the transmittance of samples from their alphas: T_i = product over j < i of (1 - alpha_j).

    Args:
        alphas: packed (all_samples,), or batched (n_rays, n_samples). Differentiable, also at alphas of 1.
        packed_info: (n_rays, 2), the start and the count of each ray's samples.
        ray_indices: (all_samples,), the ray of each sample, instead of `packed_info`.
        n_rays: the number of rays, with `ray_indices`.
        prefix_trans: shaped like the alphas: the transmittance before the first sample, a factor.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        Shaped like the alphas.

    Raises:
        ArgumentError: both `packed_info` and `ray_indices` are passed.
        ShapeError, DtypeError: tensors do not fit.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.render_transmittance_from_alpha(torch.tensor([0.5, 0.5, 0.1]), ray_indices=torch.tensor([0, 0, 1]))
        tensor([1.0000, 0.5000, 1.0000])
    """
    rays = resolve_rays("render_transmittance_from_alpha", packed_info, ray_indices, n_rays)
    trans = exclusive_prod(1 - alphas, rays, engine=engine)
    return trans if prefix_trans is None else trans * prefix_trans


def render_transmittance_from_density(
    t_starts: Tensor,
    t_ends: Tensor,
    sigmas: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    prefix_trans: Tensor | None = None,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute transmittance and alphas of samples from their densities.

        alpha_i = 1 - exp(-sigma_i (t_end_i - t_start_i))
        T_i = exp(-sum over j < i of sigma_j (t_end_j - t_start_j))

    Args:
        t_starts: the starts of the samples: packed (all_samples,), or batched (n_rays, n_samples).
        t_ends: the ends of the samples.
        sigmas: the densities. Differentiable, as are `t_starts` and `t_ends`.
        packed_info: (n_rays, 2), the start and the count of each ray's samples.
        ray_indices: (all_samples,), the ray of each sample, instead of `packed_info`.
        n_rays: the number of rays, with `ray_indices`.
        prefix_trans: shaped like the densities: the transmittance before the first sample, a factor.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        Transmittance and alphas, shaped like the densities.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> t = torch.tensor([[0.0, 1.0]])
        >>> nerfacc.render_transmittance_from_density(t, t + 1, torch.full((1, 2), 2.0).log())
        (tensor([[1.0000, 0.5000]]), tensor([[0.5000, 0.5000]]))
    """
    rays = resolve_rays("render_transmittance_from_density", packed_info, ray_indices, n_rays)
    depths = sigmas * (t_ends - t_starts)
    trans = torch.exp(-exclusive_sum(depths, rays, engine=engine))
    return trans if prefix_trans is None else trans * prefix_trans, 1 - torch.exp(-depths)


def render_weight_from_alpha(
    alphas: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    prefix_trans: Tensor | None = None,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute weights and transmittance of samples from their alphas: weight_i = T_i alpha_i.

    Arguments and errors as in `render_transmittance_from_alpha`.

    Returns:
        Weights and transmittance, shaped like the alphas.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.render_weight_from_alpha(torch.tensor([0.5, 0.5, 0.1]), ray_indices=torch.tensor([0, 0, 1]))[0]
        tensor([0.5000, 0.2500, 0.1000])
    """
    trans = render_transmittance_from_alpha(alphas, packed_info, ray_indices, n_rays, prefix_trans, engine=engine)
    return trans * alphas, trans


def render_weight_from_density(
    t_starts: Tensor,
    t_ends: Tensor,
    sigmas: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    prefix_trans: Tensor | None = None,
    *,
    engine: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute weights, transmittance and alphas of samples from their densities: weight_i = T_i alpha_i.

    Arguments and errors as in `render_transmittance_from_density`.

    Returns:
        Weights, transmittance and alphas, shaped like the densities.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> t = torch.tensor([[0.0, 1.0]])
        >>> nerfacc.render_weight_from_density(t, t + 1, torch.full((1, 2), 2.0).log())[0]
        tensor([[0.5000, 0.2500]])
    """
    given = (packed_info, ray_indices, n_rays, prefix_trans)
    trans, alphas = render_transmittance_from_density(t_starts, t_ends, sigmas, *given, engine=engine)
    return trans * alphas, trans, alphas


@torch.no_grad()
def render_visibility_from_alpha(
    alphas: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    early_stop_eps: float = 1e-4,
    alpha_thre: float = 0.0,
    prefix_trans: Tensor | None = None,
    *,
    engine: str | None = None,
) -> Tensor:
    """Find the visible samples from alphas: those with T_i >= early_stop_eps and alpha_i >= alpha_thre.

    Other arguments and errors as in `render_transmittance_from_alpha`.

    Returns:
        Bool, shaped like the alphas.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.render_visibility_from_alpha(torch.tensor([[0.5, 0.5, 0.1]]), early_stop_eps=0.3, alpha_thre=0.2)
        tensor([[ True,  True, False]])
    """
    trans = render_transmittance_from_alpha(alphas, packed_info, ray_indices, n_rays, prefix_trans, engine=engine)
    return _find_visible(trans, alphas, early_stop_eps, alpha_thre)


@torch.no_grad()
def render_visibility_from_density(
    t_starts: Tensor,
    t_ends: Tensor,
    sigmas: Tensor,
    packed_info: Tensor | None = None,
    ray_indices: Tensor | None = None,
    n_rays: int | None = None,
    early_stop_eps: float = 1e-4,
    alpha_thre: float = 0.0,
    prefix_trans: Tensor | None = None,
    *,
    engine: str | None = None,
) -> Tensor:
    """Find the visible samples from densities: those with T_i >= early_stop_eps and alpha_i >= alpha_thre.

    Other arguments and errors as in `render_transmittance_from_density`.

    Returns:
        Bool, shaped like the densities.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> t = torch.tensor([[0.0, 1.0]])
        >>> nerfacc.render_visibility_from_density(t, t + 1, torch.ones(1, 2), early_stop_eps=0.5)
        tensor([[ True, False]])
    """
    given = (packed_info, ray_indices, n_rays, prefix_trans)
    trans, alphas = render_transmittance_from_density(t_starts, t_ends, sigmas, *given, engine=engine)
    return _find_visible(trans, alphas, early_stop_eps, alpha_thre)


def accumulate_along_rays(
    weights: Tensor, values: Tensor | None = None, ray_indices: Tensor | None = None, n_rays: int | None = None
) -> Tensor:
    """Sum weights times values over each ray's samples, as nerfacc's function of this name.

    Args:
        weights: packed (all_samples,), or batched (n_rays, n_samples). Differentiable.
        values: (all_samples, D) or (n_rays, n_samples, D), differentiable; None for ones, with D = 1.
        ray_indices: (all_samples,), int64, the ray of each sample, in any order. None for batched samples.
        n_rays: the number of rays, with `ray_indices`.

    Returns:
        (n_rays, D), 0 for a ray without samples.

    Raises:
        ArgumentError: `ray_indices` is passed without `n_rays`, or `n_rays` is no count.
        ShapeError: tensors do not fit each other.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.accumulate_along_rays(torch.tensor([0.5, 0.25, 1.0]), None, torch.tensor([0, 0, 2]), 3)
        tensor([[0.7500],
                [0.0000],
                [1.0000]])
    """
    weighted = _weigh("accumulate_along_rays", weights, values, ray_indices)
    if ray_indices is None:
        return weighted.sum(-2)
    if n_rays is None:
        rows = [("expected", "the number of rays"), ("got", "None")]
        remedy = "Pass `n_rays`, such as len(rays_o)."
        raise ArgumentError(refusal("`n_rays` of `accumulate_along_rays` is missing", rows, remedy))
    n_rays = read_count("n_rays", "`accumulate_along_rays`", n_rays)
    return weighted.new_zeros(n_rays, weighted.shape[-1]).index_add(0, ray_indices, weighted)


def accumulate_along_rays_(
    weights: Tensor, values: Tensor | None = None, ray_indices: Tensor | None = None, outputs: Tensor | None = None
) -> None:
    """Add the sums of `accumulate_along_rays` to `outputs` (n_rays, D), in place, as nerfacc's function of this name.

    Raises:
        ShapeError: tensors do not fit each other.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> opacity = torch.tensor([[0.25], [0.0]])
        >>> nerfacc.accumulate_along_rays_(torch.tensor([0.5]), None, torch.tensor([0]), opacity)
        >>> opacity
        tensor([[0.7500],
                [0.0000]])
    """
    weighted = _weigh("accumulate_along_rays_", weights, values, ray_indices)
    if outputs is None or outputs.ndim != 2 or outputs.shape[-1] != weighted.shape[-1]:
        got = "None" if outputs is None else str(tuple(outputs.shape))
        rows = [("expected", f"(n_rays, {weighted.shape[-1]})"), ("got", got)]
        remedy = "Pass zeros of the expected shape."
        raise ShapeError(refusal("`outputs` of `accumulate_along_rays_` has the wrong shape", rows, remedy))
    if ray_indices is None:
        outputs.add_(weighted.sum(-2))
    else:
        outputs.index_add_(0, ray_indices, weighted)


def distortion(
    weights: Tensor,
    t_starts: Tensor,
    t_ends: Tensor,
    ray_indices: Tensor,
    n_rays: int,
    *,
    engine: str | None = None,
) -> Tensor:
    """Compute the spread of the weights along each ray, as nerfacc's function of this name.

    It is `tinsmith.render.distortion_loss` of packed samples.

    Args:
        weights: (all_samples,). Differentiable, as are `t_starts` and `t_ends`.
        t_starts: (all_samples,), the starts of the samples, ascending along a ray.
        t_ends: (all_samples,), the ends of the samples.
        ray_indices: (all_samples,), integers that never decrease: the ray of each sample.
        n_rays: the number of rays.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        (n_rays, 1).

    Raises:
        ShapeError, DtypeError: tensors do not fit each other.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> weights, t = torch.tensor([[0.5, 0.5], [0.5, 2.5]])
        >>> nerfacc.distortion(weights, t, t + 1, torch.tensor([0, 0]), 1)
        tensor([[1.1667]])
    """
    _check_samples("distortion", weights=weights, t_starts=t_starts, t_ends=t_ends, ray_indices=ray_indices)
    rays = pack(ray_indices, n_rays)
    return distortion_loss(weights, (t_starts + t_ends) / 2, t_ends - t_starts, rays, engine=engine)[:, None]


def _find_visible(trans: Tensor, alphas: Tensor, early_stop_eps: float, alpha_thre: float) -> Tensor:
    visible = trans >= early_stop_eps
    return visible & (alphas >= alpha_thre) if alpha_thre > 0 else visible


def _weigh(function: str, weights: Tensor, values: Tensor | None, ray_indices: Tensor | None) -> Tensor:
    """Return values times weights, (..., D); the weights themselves, (..., 1), if there are no values.

    Raises:
        ShapeError: tensors do not fit each other.
    """
    if ray_indices is not None and (weights.ndim != 1 or ray_indices.shape != weights.shape):
        rows = [("weights", f"{tuple(weights.shape)}"), ("ray_indices", f"{tuple(ray_indices.shape)}")]
        remedy = "With `ray_indices`, pass weights (all_samples,)."
        raise ShapeError(refusal(f"The arguments of `{function}` do not fit each other", rows, remedy))
    if values is None:
        return weights[..., None]
    if values.shape[:-1] != weights.shape:
        rows = [("weights", str(tuple(weights.shape))), ("values", str(tuple(values.shape)))]
        remedy = "Pass values shaped like the weights, with one more dim."
        raise ShapeError(refusal(f"The arguments of `{function}` do not fit each other", rows, remedy))
    return weights[..., None] * values


def _check_samples(function: str, **tensors: Tensor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        rows = [(name, str(shape)) for name, shape in shapes.items()]
        remedy = "Pass one number per sample."
        raise ShapeError(refusal(f"The arguments of `{function}` do not fit each other", rows, remedy))


def _ask_field(
    name: str, function: Any, t_starts: Tensor, t_ends: Tensor, ray_indices: Tensor | None
) -> tuple[Tensor, Tensor]:
    rgbs, measures = function(t_starts, t_ends, ray_indices)
    shape = tuple(t_starts.shape)
    if rgbs.shape[-1] != 3 or measures.shape != shape:
        rows = [("expected", f"{(*shape, 3)} and {shape}"), ("got", f"{tuple(rgbs.shape)} and {tuple(measures.shape)}")]
        remedy = "Return colors and one number for each sample; `.squeeze(-1)` removes a last dim of 1."
        raise ShapeError(refusal(f"`{name}` of `rendering` returned other shapes", rows, remedy))
    return rgbs, measures
