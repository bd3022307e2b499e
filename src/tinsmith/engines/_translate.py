"""The namesake of an engine's value in another engine: modules, dtypes, vector types, functions."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from .._errors import KernelError, refusal
from . import _shared
from ._contract import Engine

_MISSING = object()


def translate(value: Any, home: Engine, to: Engine) -> Any:
    """What `value`, known to engine `home`, is called in engine `to`; foreign values as they are.

    Raises:
        KernelError: the value belongs to `home` and has no namesake.
    """
    entries = home.matrix_entries(value)
    if entries is not None:
        return to.lang.Matrix(value.to_list())
    if not home.owns(value):
        return value
    found = _namesake(value, home, to)
    if found is _MISSING:
        raise KernelError(
            refusal(
                f"{value!r} of {home.name} has no namesake in {to.name}",
                remedy=f"Write the kernel for {to.name}, or leave this value out of it.",
            )
        )
    return found


def _namesake(value: Any, home: Engine, to: Engine) -> Any:
    if isinstance(value, ModuleType):
        return importlib.import_module(to.name + value.__name__.removeprefix(home.name))
    if hasattr(value, "to_string") and getattr(value, "dtype", None) is None:
        return getattr(to.lang, value.to_string(), _MISSING)
    if hasattr(value, "ndim") and hasattr(value, "n"):
        maker = to.lang.types.vector if value.ndim == 1 else to.lang.types.matrix
        return maker(*_shared.element_of(value), translate(value.dtype, home, to))
    name = getattr(value, "__name__", "")
    for place in (to.lang, to.lang.math):
        if hasattr(place, name):
            return getattr(place, name)
    return _MISSING
