"""Checks of the arguments and inputs of encodings and networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from .._errors import ArgumentError, DtypeError, ShapeError, refusal
from ..calls import refuse_nested
from ._precision import PARAMETERS, compute_dtype


class _Module(Protocol):
    n_input_dims: int
    params: torch.nn.Parameter


def require_seed(seed: int | None) -> int:
    """Return the seed that a network array was made with.

    Raise ArgumentError if it is None: then the array is a part of another array, and has no initial parameters.
    """
    if seed is None:
        words = "a part of a NetworkArray has no initial parameters of its own"
        raise ArgumentError(refusal(words, remedy="Reset the array, and take the part again."))
    return seed


def check_dtype(module: str, dtype: torch.dtype) -> torch.dtype:
    """Return a dtype. Raise DtypeError unless the parameters of a module may have it."""
    if dtype not in PARAMETERS:
        rows = [("got", str(dtype)), ("expected", ", ".join(map(str, PARAMETERS)))]
        raise DtypeError(refusal(f"{module} does not run in this dtype", rows, "Pass dtype=torch.float32."))
    return dtype


def prepare_input(module: _Module, x: Tensor, otype: str = "") -> Tensor:
    """Check the input of an encoding or a network and convert it to the dtype of the computation.

    Raises:
        ArgumentError, ShapeError, DtypeError: the input is not a real tensor (..., n_input_dims).
    """
    params, name = module.params, type(module).__name__
    check_dtype(name, params.dtype)
    if not isinstance(x, Tensor):
        remedy = "Pass torch.as_tensor(x)."
        raise ArgumentError(refusal(f"`x` of {name} must be a tensor", [("got", type(x).__name__)], remedy))
    refuse_nested("x", x, name)
    if x.ndim == 0 or x.shape[-1] != module.n_input_dims:
        raise _make_misfit_error(module, x, otype)
    if x.is_complex():
        rows = [("got", str(x.dtype)), ("expected", "real numbers, of any dtype")]
        raise DtypeError(refusal(f"`x` of {name} must be real", rows, "Pass its real and imaginary parts as dims."))
    return x.to(compute_dtype(params.dtype))


def _make_misfit_error(module: _Module, x: Tensor, otype: str) -> ShapeError:
    n, name = module.n_input_dims, type(module).__name__
    rows = [("x", f"[..., {n}] = {tuple(x.shape)}", f"the last should be {n}")]
    remedy = f"Pass inputs of {n} numbers, or make the {name} with as many n_input_dims."
    called = f"{name}, {otype}," if otype else name
    return ShapeError(refusal(f"`x` of {called} has the wrong shape", rows, remedy))


def explain_unfit_params(module: _Module, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
    """Append an explanation to torch's load errors, the last of `args`, if the saved `params` have another size."""
    saved = state_dict.get(f"{prefix}params")
    if isinstance(saved, Tensor) and saved.shape != module.params.shape:
        args[-1].append(
            f"`{prefix}params` has {saved.numel()} numbers for a {type(module).__name__} of {module.params.numel()}. "
            "If tiny-cuda-nn saved it, make the module with alignment=16, the default; else with the sizes, the "
            "configuration and the alignment of the module that was saved."
        )
