"""Casts: how a number of each type is held, and how it becomes one of another type.

A float is a 0-d tensor, so that torch's autograd follows it; an integer or a truth is a Python
integer that wraps around as the engine's does. `Precision` says which dtype stands for a float.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ..ir import types

Number: TypeAlias = "int | torch.Tensor"
Change: TypeAlias = Callable[..., Number]

_OWN = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
_SAME_BITS = {1: torch.uint8, 8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


@dataclass(frozen=True)
class Precision:
    """Which dtype stands for a float: float64 for all (exact), or its own (faithful to what is compiled)."""

    faithful: bool = False

    def dtype(self, kind: str) -> torch.dtype:
        """The dtype that holds a float of the type `kind`."""
        return _OWN[kind] if self.faithful else torch.float64


def bits(kind: str) -> int:
    """Bits that a number of a type has: of a truth, one."""
    return int(kind[1:])


def wrapping(kind: str) -> Callable[[int], int]:
    """What brings any integer into the range of a type, by dropping the bits above."""
    mask = (1 << bits(kind)) - 1
    if kind in types.UNSIGNED:
        return lambda value: value & mask
    half = (mask >> 1) + 1
    return lambda value: ((value + half) & mask) - half


def cast(source: str, target: str, precision: Precision) -> Change | None:
    """What turns a number of one type into one of another; None where nothing is to be done."""
    if types.is_float(source):
        return _from_float(source, target, precision)
    if types.is_float(target):
        dtype = precision.dtype(target)
        return lambda value: torch.scalar_tensor(value, dtype=dtype)
    if source == target:
        return None
    return _truth if target == "u1" else wrapping(target)


def _from_float(source: str, target: str, precision: Precision) -> Change | None:
    if not types.is_float(target):
        return _truncation(target)
    dtype = precision.dtype(target)
    return None if dtype == precision.dtype(source) else lambda value: value.to(dtype)


def _truth(value: int) -> int:
    return int(value != 0)


def _truncation(target: str) -> Change:
    """Float to integer. What does not fit is undefined in the engines: here the lowest value, as x86 gives."""
    wrap = wrapping(target)
    limit = 2 ** (max(bits(target), 32) - (target in types.SIGNED))
    lowest = wrap(-limit)

    def truncate(value: torch.Tensor) -> int:
        number = value.item()
        if not math.isfinite(number) or abs(number) > limit:
            return lowest
        return wrap(int(number))

    return truncate


def same_bits(source: str, target: str, precision: Precision) -> Change:
    """What reads the bits of a number of one type as one of another of the same width. Not differentiable."""
    pattern = _SAME_BITS[bits(source)]
    signed = wrapping(f"i{bits(source)}")
    wrap = None if types.is_float(target) else wrapping(target)

    def again(value: Number) -> Number:
        if isinstance(value, torch.Tensor):
            held = value.detach().to(_OWN[source])
        else:
            held = torch.scalar_tensor(signed(value), dtype=pattern)
        if wrap is None:
            return held.view(_OWN[target]).to(precision.dtype(target))
        return wrap(int(held.view(pattern).item()))

    return again
