"""Read numbers: numbers that kernels return to Python while a rollout is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ReadNumber(float):
    """A number that a kernel returned to Python: it may decide what runs, and has no gradient."""

    __slots__ = ()


def _compute(name: str) -> Callable[..., Any]:
    operation = getattr(float, name)

    def compute(*numbers: Any) -> Any:
        result = operation(*numbers)
        return ReadNumber(result) if isinstance(result, float) else result

    return compute


for _name in ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv"):
    for _side in ("", "r"):
        setattr(ReadNumber, f"__{_side}{_name}__", _compute(f"__{_side}{_name}__"))
for _name in ("neg", "pos", "abs"):
    setattr(ReadNumber, f"__{_name}__", _compute(f"__{_name}__"))
