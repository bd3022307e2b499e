"""The ops of this package. Each is built in its first call, for an engine and a floating-point dtype, and cached.

A file registers a function that makes its op, and gets the op in each call:

    @register_maker("weigh")
    def _make_weigh(lang, fp):
        return op("x[n] -> y[n]", adjoint="source")(kernels.weigh(lang, fp=fp))

    get_op("weigh", engine, x)(x)

Ops are attributes of a global object, so that `torch.compile` finds them too. It would copy a dict when it first sees
it, without the ops that are built later in the same trace.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._errors import DtypeError, refusal
from .._integers import read_integer
from ..calls import language
from ..tracing import constant_when_traced

FLOATS = {torch.float32: "f32", torch.float64: "f64"}
"""The supported dtypes, with their names in kernels."""

_MAKERS: dict[str, Callable[..., Any]] = {}


class _Shelf:
    """The cache of built ops: attributes named by the op, the engine, the float type and the static values."""


_SHELF = _Shelf()


def register_maker(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that registers a function as the maker of the op, or tuple of ops, with this name.

    The function takes an engine's module, "f32" or "f64", and static values.
    """

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
    return getattr(_SHELF, _build_op(name, engine, like.device, like.dtype, *map(known_when_traced, static)))


def known_when_traced(value: Any) -> Any:
    """Return a value. Under `torch.compile`, make an integer a constant of the graph, which recompiles for each value.

    Otherwise sizes that have changed once would be symbols, for which no kernel can be built.
    """
    number = read_integer(value)
    return value if number is None else operator.index(number)


@constant_when_traced
def _build_op(name: str, engine: str | None, device: torch.device, dtype: torch.dtype, *static: Any) -> str:
    """Return the name of an op's attribute in `_SHELF`. Build the op if it is not there."""
    if dtype not in FLOATS:
        words = f"`{name}` works in float32 or float64"
        remedy = "Convert the tensors with .float() or .double()."
        raise DtypeError(refusal(words, [("expected", "torch.float32 or torch.float64"), ("got", str(dtype))], remedy))
    lang = language(engine, device)
    place = " ".join(map(str, (name, lang.__name__, FLOATS[dtype], *static)))
    if not hasattr(_SHELF, place):
        setattr(_SHELF, place, _MAKERS[name](lang, FLOATS[dtype], *static))
    return place


def cast_to_single(given: Any) -> Any:
    """Cast a floating-point tensor to float32 under autocast, as ops do. Return float64 and other values unchanged."""
    if not isinstance(given, Tensor) or not given.is_floating_point() or given.dtype == torch.float64:
        return given
    is_cast = given.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(given.device.type)
    return given.float() if is_cast else given
