"""The ops of this package: each is built at its first call, for an engine and a floating-point type, and cached.

A file here registers how its op is made, and asks for it in each call:

    @made("weigh")
    def _weigh(lang, fp):
        return op("x[n] -> y[n]", adjoint="source")(kernels.weigh(lang, fp=fp))

    built("weigh", engine, x)(x)

They are kept as attributes of a global object, where `torch.compile` finds them too: a dict it would copy when it first
sees it, without what is built later in the same trace.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._errors import DtypeError, refusal
from ..calls import language
from ..tracing import constant_when_traced

FLOATS = {torch.float32: "f32", torch.float64: "f64"}
"""The supported dtypes, with their names in kernels."""

_MAKERS: dict[str, Callable[..., Any]] = {}


class _Shelf:
    """The built ops, by name, engine, float type and static values."""


_SHELF = _Shelf()


def register_maker(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function that makes an op, or several, from an engine's module, "f32" or "f64", and static values."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        _MAKERS[name] = make
        return make

    return register


def get_op(name: str, engine: str | None, like: Tensor, *static: Any) -> Any:
    """Return the op of this name for an engine on the device of the tensor `like`, and for its dtype.

    Raises:
        DtypeError: `like` is neither float32 nor float64.
        EngineError, DeviceError: the engine is not available there.
    """
    return getattr(_SHELF, _place(name, engine, like.device, like.dtype, *map(known_when_traced, static)))


def known_when_traced(value: Any) -> Any:
    """Return the value. `torch.compile` compiles again for each integer, so that kernels can be built for it.

    Sizes that have changed once are symbols to it, out of which no kernel is made.
    """
    return operator.index(value) if isinstance(value, int) and not isinstance(value, bool) else value


@constant_when_traced
def _place(name: str, engine: str | None, device: torch.device, dtype: torch.dtype, *static: Any) -> str:
    """What the attribute is called, which is there then."""
    if dtype not in FLOATS:
        raise DtypeError(
            refusal(
                f"`{name}` works in float32 or float64",
                [("expected", "torch.float32 or torch.float64"), ("got", str(dtype))],
                "Convert the tensors with .float() or .double().",
            )
        )
    lang = language(engine, device)
    place = " ".join(map(str, (name, lang.__name__, FLOATS[dtype], *static)))
    if not hasattr(_SHELF, place):
        setattr(_SHELF, place, _MAKERS[name](lang, FLOATS[dtype], *static))
    return place


def in_single(given: Any) -> Any:
    """Cast a tensor to float32 under autocast, as ops do; float64 and other values are not changed."""
    if not isinstance(given, Tensor) or not given.is_floating_point() or given.dtype == torch.float64:
        return given
    is_cast = given.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(given.device.type)
    return given.float() if is_cast else given
