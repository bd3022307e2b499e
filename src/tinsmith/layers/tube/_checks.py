"""Checks of the tensors of a Tube's call, except for sizes: number, dtypes, devices, gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import ArgumentError, DeviceError, DtypeError, GradientError, refusal
from ...calls import refuse_nested
from ._blueprint import Blueprint
from ._parts import TensorPart


def check_tensors(blueprint: Blueprint, tensors: Sequence[Any]) -> None:
    """Raise an error for inputs that a Tube cannot take. Shapes are not checked here.

    Raises:
        ArgumentError: there are too many or too few inputs, or one is not a tensor.
        DtypeError: an input's dtype cannot be converted to the registered one, as a float to an integer.
        DeviceError: tensors are on different devices, or not on the Tube's.
        GradientError: an input requires a gradient, but the Tube was made with `enable_backward=False`.
    """
    if len(tensors) != len(blueprint.inputs):
        raise _wrong_count(blueprint, len(tensors))
    for part, tensor in zip(blueprint.inputs, tensors, strict=True):
        if not isinstance(tensor, torch.Tensor):
            words = f"argument `{part.name}` of {blueprint.label} must be a tensor"
            rows = [("got", f"{type(tensor).__name__} {tensor!r:.60}")]
            raise ArgumentError(refusal(words, rows, f"Pass a tensor: `torch.as_tensor({part.name})`."))
        refuse_nested(part.name, tensor, blueprint.label)
        _check_dtype(blueprint, part, tensor)
        _check_device(blueprint, part, tensor, tensors)
        if tensor.requires_grad and not blueprint.enable_backward:
            words = f"tensor `{part.name}` of {blueprint.label} requires a gradient, but enable_backward is False"
            raise GradientError(
                refusal(words, remedy=f"Pass `{part.name}.detach()`, or make the Tube with enable_backward=True.")
            )


def _wrong_count(blueprint: Blueprint, count: int) -> ArgumentError:
    """Build the error for a call with too many or too few tensors."""
    names = ", ".join(part.name for part in blueprint.inputs)
    rows = [("expected", f"{len(blueprint.inputs)}: {names}"), ("got", str(count))]
    words = f"{blueprint.label} got a wrong number of tensors"
    return ArgumentError(refusal(words, rows, f"Call it with ({names}); outputs and fields are made by the call."))


def _check_dtype(blueprint: Blueprint, part: TensorPart, tensor: torch.Tensor) -> None:
    dtype = tensor.dtype
    if dtype == part.dtype or (_rank(dtype) <= _rank(part.dtype) and dtype.is_complex == part.dtype.is_complex):
        return
    words = f"tensor `{part.name}` of {blueprint.label} has the wrong dtype"
    rows = [("registered", _short(part.dtype)), ("got", _short(dtype))]
    remedy = f"Pass `{part.name}.to({part.dtype})`, or register it as {dtype}."
    if dtype.is_complex or part.is_complex:
        remedy = f"Register it as {dtype}, or pass `torch.view_as_{'real' if dtype.is_complex else 'complex'}(...)`."
    raise DtypeError(refusal(words, rows, remedy))


def _rank(dtype: torch.dtype) -> int:
    """Return the rank of a dtype in conversions: integers may become floats, and floats never become integers."""
    return 1 if dtype.is_floating_point or dtype.is_complex else 0


def _check_device(blueprint: Blueprint, part: TensorPart, tensor: torch.Tensor, tensors: Sequence[Any]) -> None:
    wanted = blueprint.device or tensors[0].device
    if tensor.device.type == wanted.type and wanted.index in (None, tensor.device.index):
        return
    pairs = zip(blueprint.inputs, tensors, strict=True)
    rows = [(one.name, str(getattr(other, "device", "no tensor"))) for one, other in pairs]
    if blueprint.device is None:
        words = f"the tensors of {blueprint.label} are on different devices"
    else:
        words = f"tensor `{part.name}` of {blueprint.label} is not on {wanted}, where the Tube was made"
    raise DeviceError(refusal(words, rows, f"Move it: `{part.name}.to({str(wanted)!r})`."))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
