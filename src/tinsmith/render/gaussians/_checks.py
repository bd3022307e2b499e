"""Checks of arguments that the functions of this package share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..._errors import ArgumentError, nearest, refusal
from ..._integers import read_positive
from .._packed import make_shape_error

CameraModel = Literal["pinhole", "ortho", "fisheye"]
DepthMode = Literal["expected", "median"]
RasterizeMode = Literal["classic", "antialiased"]
RenderMode = Literal["RGB", "D", "ED", "RGB+D", "RGB+ED"]

_UNDISTORT = "Undistort the pictures first, as `load_colmap` and `load_blender` do, and leave it out."
_ONE_POSE = "Each camera has one pose here: leave it out."
_UNSUPPORTED: dict[str, tuple[object, str]] = {
    "distributed": (False, "Let each process render its own cameras, with all Gaussians, and leave it out."),
    "with_ut": (False, "Covariances are projected by the derivative of the camera's projection: leave it out."),
    "with_eval3d": (False, "Gaussians are evaluated in the image: leave it out."),
    "radial_coeffs": (None, _UNDISTORT),
    "tangential_coeffs": (None, _UNDISTORT),
    "thin_prism_coeffs": (None, _UNDISTORT),
    "ftheta_coeffs": (None, _UNDISTORT),
    "rolling_shutter": (None, _ONE_POSE),
    "viewmats_rs": (None, _ONE_POSE),
}
"""Options of gsplat that are supported only with their default: the default, and a remedy for other values."""


def refuse_unsupported(function: str, **options: object) -> None:
    """Raise ArgumentError if an unsupported option of gsplat is not at its default."""
    for name, given in options.items():
        default, remedy = _UNSUPPORTED[name]
        # The default of gsplat's `rolling_shutter` is a member of gsplat's own enumeration.
        if given is not default and getattr(given, "name", None) != "GLOBAL":
            got = f"a tensor {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)
            rows = [("got", got), ("expected", repr(default))]
            raise ArgumentError(refusal(f"`{name}` of `{function}` is not supported", rows, remedy))


def require_choice(function: str, name: str, given: object, choices: Any) -> None:
    """Raise ArgumentError unless a value is one of the strings of `choices`, a Literal type."""
    known = get_args(choices)
    if given not in known:
        close = nearest(str(given), known)
        rows = [("got", repr(given)), ("expected", ", ".join(map(repr, known)))]
        remedy = f"Pass {name}={close!r}." if close else f"Pass one of these as `{name}`."
        raise ArgumentError(refusal(f"`{name}` of `{function}` has an unknown value", rows, remedy))


def require_positive(function: str, **sizes: object) -> list[int]:
    """Return sizes in pixels as integers. Raise ArgumentError unless all are integers above 0."""
    # A list comprehension, which torch 2.6's compiler can trace.
    return [read_positive(name, f"`{function}`", given, f"Pass `{name}` in pixels.") for name, given in sizes.items()]


def require_shape(function: str, name: str, given: Tensor, axes: str, expected: Sequence[int]) -> None:
    """Raise ShapeError unless a tensor has the expected shape. `axes` describes it in the message."""
    if tuple(given.shape) != tuple(expected):
        raise make_shape_error(function, name, given, f"{axes} = {tuple(expected)}")


def require_last(function: str, name: str, given: Tensor, axes: str, last: Sequence[int]) -> None:
    """Raise ShapeError unless the last sizes of a tensor are `last`. `axes` describes its shape in the message."""
    if given.ndim < len(last) or tuple(given.shape[given.ndim - len(last) :]) != tuple(last):
        raise make_shape_error(function, name, given, axes)


def is_ordered() -> bool:
    """Return True if torch is set to deterministic algorithms. Threads otherwise add in a random order."""
    return torch.are_deterministic_algorithms_enabled()


def number_rows(start: Tensor) -> Tensor:
    """Return the indices of a tensor's rows, [0, 1, ...], int32."""
    return torch.arange(len(start), dtype=torch.int32, device=start.device)
