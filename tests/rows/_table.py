"""A table of kernels: each row builds one for an engine, and draws its arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch


class Draw:
    """Random arguments, the same for the same seed."""

    def __init__(self, real: torch.dtype) -> None:
        self.real = real
        self._generator = torch.Generator().manual_seed(7)

    def __call__(self, *shape: int, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
        """Draw floats between two numbers."""
        unit = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return (low + (high - low) * unit).to(self.real)

    def integers(self, *shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Draw integers from `low` up to, not including, `high`."""
        return torch.randint(low, high, shape, generator=self._generator).to(dtype)

    def zeros(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return memory to write to."""
        return torch.zeros(shape, dtype=dtype or self.real)


@dataclass(frozen=True)
class Row:
    """A kernel of the table. `is_exact` says that its result is the same bit for bit."""

    name: str
    build: Callable[[ModuleType, Any], Any]
    draw: Callable[[Draw], tuple[Any, ...]]
    is_exact: bool = True

    def __str__(self) -> str:
        return self.name


class Table(list[Row]):
    """Rows in their order."""

    def row(self, draw: Callable[[Draw], tuple[Any, ...]], *, exact: bool = True) -> Callable[[Any], Any]:
        """Return a decorator that adds a builder to the table: (engine module, its real type) -> kernel."""

        def add(build: Callable[[ModuleType, Any], Any]) -> Callable[[ModuleType, Any], Any]:
            self.append(Row(build.__name__, build, draw, exact))
            return build

        return add
