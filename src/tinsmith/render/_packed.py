"""`pack`, and checks of packed samples: those of a ray are next to each other, and `rays` has starts and counts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .._errors import ArgumentError, DtypeError, ShapeError, refusal
from .._integers import read_count
from ..tracing import is_plain
from ._ops import FLOATS

_WHOLE = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)


def pack(ray_index: Tensor, n_rays: int) -> Tensor:
    """Compute the start and the count of each ray's samples from the ray of each sample.

    Args:
        ray_index: (s), integers from 0 to n_rays - 1, which never decrease. Checked on the CPU only: on a GPU the check
            would synchronize.
        n_rays: the number of rays, including those without samples.

    Returns:
        (n_rays, 2), int32: the start and the count of each ray's samples. Not differentiable.

    Raises:
        ArgumentError, DtypeError, ShapeError: `ray_index` is not such a tensor, or `n_rays` is no count.

    Example:
        >>> ts.render.pack(torch.tensor([0, 0, 2]), 3)
        tensor([[0, 2],
                [2, 0],
                [2, 1]], dtype=torch.int32)
    """
    _require_tensors("pack", {"ray_index": ray_index})
    _require_whole("pack", "ray_index", ray_index)
    if ray_index.ndim != 1:
        raise make_shape_error("pack", "ray_index", ray_index, "[s]")
    n_rays = read_count("n_rays", "`pack`", n_rays)
    if _can_read(ray_index) and len(ray_index):
        _require_sorted(ray_index, n_rays)
    counts = torch.zeros(n_rays, dtype=torch.int32, device=ray_index.device)
    counts.index_add_(0, ray_index.long(), counts.new_ones(()).expand(len(ray_index)))
    return torch.stack([counts.cumsum(0, dtype=torch.int32) - counts, counts], dim=1)


def dense_rays(n: int, k: int, device: torch.device) -> Tensor:
    """Return the starts and counts, (n, 2) int32, of n rays with k samples each."""
    starts = torch.arange(n, dtype=torch.int32, device=device) * k
    return torch.stack([starts, torch.full_like(starts, k)], dim=1)


def check_rays(function: str, rays: Tensor, size: int) -> Tensor:
    """Check starts and counts of rays against `size` samples, and convert them to int32. Values are checked on the CPU.

    Raises:
        ArgumentError, DtypeError, ShapeError: they do not fit. The message names the function.
    """
    _require_tensors(function, {"rays": rays})
    _require_whole(function, "rays", rays)
    if rays.ndim != 2 or rays.shape[1] != 2:
        raise make_shape_error(function, "rays", rays, "[n, 2]")
    if _can_read(rays) and rays.numel():
        starts, counts = rays[:, 0], rays[:, 1]
        low, high = int(rays.min()), int((starts + counts).max())
        if low < 0 or (high > size and bool(((starts + counts > size) & (counts > 0)).any())):
            rows = [("samples", str(size)), ("start, count", f"the smallest is {low}, the last sample {high - 1}")]
            remedy = "Pass the start and count of each ray's samples, as `pack` returns them."
            raise ShapeError(refusal(f"`rays` of `{function}` points outside the samples", rows, remedy))
    return rays.to(torch.int32)


def check_floats(function: str, tensors: Mapping[str, Tensor]) -> None:
    """Raise DtypeError unless all tensors are float32 or all float64, and ArgumentError if one is not a tensor."""
    _require_tensors(function, tensors)
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    if len(set(dtypes.values())) > 1 or not set(dtypes.values()) <= FLOATS.keys():
        rows = [(name, str(dtype)) for name, dtype in dtypes.items()]
        remedy = "Pass all of them in float32, or all in float64: `.float()`, `.double()`."
        raise DtypeError(refusal(f"The arguments of `{function}` are not all float32 or all float64", rows, remedy))


def check_shapes(function: str, shapes: Mapping[str, tuple[Tensor, str, tuple[int, ...]]]) -> None:
    """Raise ShapeError unless each tensor has its expected shape.

    Args:
        function: the name of the caller, for the message.
        shapes: for each name the tensor, its axes as text such as "[s, c]", and the expected shape.
    """
    if all(tensor.shape == expected for tensor, _, expected in shapes.values()):
        return
    rows = []
    for name, (tensor, axes, expected) in shapes.items():
        fact = (name, f"{axes} = {tuple(tensor.shape)}")
        rows.append(fact if tensor.shape == expected else (*fact, f"should be {tuple(expected)}"))
    remedy = "Broadcast with `.expand`." if all(_expands(one, to) for one, _, to in shapes.values()) else ""
    raise ShapeError(refusal(f"The arguments of `{function}` do not fit each other", rows, remedy))


def _expands(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Return True if a tensor can be broadcast to a shape."""
    last = shape[max(len(shape) - tensor.ndim, 0) :]
    pairs = zip(tensor.shape, last, strict=False)
    return tensor.ndim <= len(shape) and all(size in (1, wanted) for size, wanted in pairs)


def make_shape_error(
    function: str, name: str, given: Tensor, expected: str, remedy: str = "Pass a tensor of the expected shape."
) -> ShapeError:
    """Make the error for a tensor whose shape is not the `expected` one."""
    rows = [("got", str(tuple(given.shape))), ("expected", expected)]
    return ShapeError(refusal(f"`{name}` of `{function}` has the wrong shape", rows, remedy))


def _require_tensors(function: str, tensors: Mapping[str, object]) -> None:
    for name, given in tensors.items():
        if not isinstance(given, Tensor):
            remedy = f"Pass {'a tensor' if given is None else f'torch.as_tensor({name})'}."
            words = f"`{name}` of `{function}` must be a tensor"
            raise ArgumentError(refusal(words, [("got", type(given).__name__)], remedy))


def _require_whole(function: str, name: str, given: Tensor) -> None:
    if given.dtype not in _WHOLE:
        words = f"`{name}` of `{function}` must be a tensor of integers"
        raise DtypeError(refusal(words, [("got", str(given.dtype))], f"Pass `{name}.int()`."))


def _require_sorted(ray_index: Tensor, n_rays: int) -> None:
    low, high = int(ray_index[0]), int(ray_index[-1])
    falls = (ray_index[1:] < ray_index[:-1]).nonzero()
    if len(falls):
        at = int(falls[0]) + 1
        rows = [(f"ray_index[{i}]", str(int(ray_index[i]))) for i in (at - 1, at)]
        remedy = "Sort the samples by their ray first."
        raise ArgumentError(refusal("`ray_index` of `pack` is not sorted", rows, remedy))
    if low < 0 or high >= n_rays:
        rows = [("got", f"{low} to {high}"), ("expected", f"0 to {n_rays - 1}")]
        remedy = "Pass a larger `n_rays`, or correct the indices."
        raise ArgumentError(refusal("`ray_index` of `pack` has an index out of range", rows, remedy))


def _can_read(tensor: Tensor) -> bool:
    """Return True if a tensor's values can be read without waiting: on the CPU, and not while tracing."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and is_plain()
