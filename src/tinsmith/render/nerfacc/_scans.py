"""Prefix sums and products along rays, with nerfacc's arguments."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import _segments
from ._samples import resolve_rays

_HALVES = (torch.float16, torch.bfloat16)


def inclusive_sum(
    inputs: Tensor, packed_info: Tensor | None = None, indices: Tensor | None = None, *, engine: str | None = None
) -> Tensor:
    """Compute inclusive prefix sums along rays, as nerfacc's function of this name.

    y_i = sum over j <= i of inputs_j. Arguments and errors as in `exclusive_sum`.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.inclusive_sum(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 5., 4.])
    """
    rays = resolve_rays("inclusive_sum", packed_info, indices)
    if rays is None:
        return inputs.cumsum(-1)
    return _scan(_segments.inclusive_sum, inputs, rays, engine)


def exclusive_sum(
    inputs: Tensor, packed_info: Tensor | None = None, indices: Tensor | None = None, *, engine: str | None = None
) -> Tensor:
    """Compute exclusive prefix sums along rays, as nerfacc's function of this name.

    y_i = sum over j < i of inputs_j

    Args:
        inputs: (all_samples,) with `packed_info` or `indices`; or (..., n_samples), summed along the last dim.
            Differentiable.
        packed_info: (n_rays, 2), the start and the count of each ray's samples.
        indices: (all_samples,), integers: the ray of each sample. Each run of equal numbers is a ray.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Returns:
        Shaped like the inputs. Half precision is summed in float32.

    Raises:
        ArgumentError: both `packed_info` and `indices` are passed.
        ShapeError, DtypeError: tensors do not fit.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.exclusive_sum(torch.tensor([2.0, 3.0, 4.0]), indices=torch.tensor([0, 0, 1]))
        tensor([0., 2., 0.])
    """
    rays = resolve_rays("exclusive_sum", packed_info, indices)
    if rays is None:
        return _shift(inputs, 0.0).cumsum(-1)
    return _scan(_segments.exclusive_sum, inputs, rays, engine)


def inclusive_prod(
    inputs: Tensor, packed_info: Tensor | None = None, indices: Tensor | None = None, *, engine: str | None = None
) -> Tensor:
    """Compute inclusive prefix products along rays, as nerfacc's function of this name.

    y_i = product over j <= i of inputs_j. Arguments and errors as in `exclusive_sum`.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.inclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([2., 6., 4.])
    """
    rays = resolve_rays("inclusive_prod", packed_info, indices)
    if rays is None:
        return inputs.cumprod(-1)
    return _scan(_segments.inclusive_prod, inputs, rays, engine)


def exclusive_prod(
    inputs: Tensor, packed_info: Tensor | None = None, indices: Tensor | None = None, *, engine: str | None = None
) -> Tensor:
    """Compute exclusive prefix products along rays, as nerfacc's function of this name.

    y_i = product over j < i of inputs_j. Arguments and errors as in `exclusive_sum`. Unlike nerfacc's, the gradient is
    right for inputs of 0 too.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> nerfacc.exclusive_prod(torch.tensor([2.0, 3.0, 4.0]), torch.tensor([[0, 2], [2, 1]]))
        tensor([1., 2., 1.])
    """
    rays = resolve_rays("exclusive_prod", packed_info, indices)
    if rays is None:
        return _shift(inputs, 1.0).cumprod(-1)
    return _scan(_segments.exclusive_prod, inputs, rays, engine)


def _shift(inputs: Tensor, first: float) -> Tensor:
    """Shift the inputs by one along the last dim: put `first` in front, and drop the last."""
    return torch.cat([torch.full_like(inputs[..., :1], first), inputs[..., :-1]], -1)


def _scan(scan: Callable[..., Tensor], inputs: Tensor, rays: Tensor, engine: str | None) -> Tensor:
    return scan(inputs.float() if inputs.dtype in _HALVES else inputs, rays, engine=engine)
