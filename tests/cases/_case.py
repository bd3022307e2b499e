"""What a row of the table is, and how rows are collected."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import torch

REGISTRY: dict[str, "Case"] = {}


class Draw:
    """Random tensors of one dtype, the same for the same seed."""

    def __init__(self, dtype: torch.dtype, seed: int = 0) -> None:
        self.dtype = dtype
        self._generator = torch.Generator().manual_seed(1234 + seed)

    def __call__(self, *shape: int, low: float = -1.5, high: float = 1.5) -> torch.Tensor:
        """Draw floats between low and high."""
        unit = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return (low + (high - low) * unit).to(self.dtype)

    def integers(self, *shape: int, below: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Draw integers from 0 up to but not including `below`."""
        return torch.randint(below, shape, generator=self._generator).to(dtype)


@dataclass(frozen=True)
class Case:
    """One op of the table.

    Attributes:
        name: the row's name, also the test's id.
        build: (engine module, its real type) -> op.
        draw: Draw -> the call's positional arguments.
        reference: the same arguments -> what torch computes, one tensor or a tuple.
        keywords: keyword dims of the call.
    """

    name: str
    build: Callable[[ModuleType, Any], Any]
    draw: Callable[[Draw], tuple[Any, ...]]
    reference: Callable[..., Any]
    keywords: Mapping[str, int] = field(default_factory=dict)

    def inputs(self, dtype: torch.dtype, seed: int = 0) -> tuple[Any, ...]:
        return self.draw(Draw(dtype, seed))

    def op(self, lang: ModuleType, dtype: torch.dtype) -> Callable[..., Any]:
        """Build the op for this engine and dtype, once, with its keyword dims filled in."""
        op = self.raw_op(lang, dtype)
        return (lambda *inputs: op(*inputs, **self.keywords)) if self.keywords else op

    def raw_op(self, lang: ModuleType, dtype: torch.dtype) -> Any:
        """Build the Op itself."""
        return _built(self.name, lang, dtype, os.environ.get("TINSMITH_ENGINE"))

    def expected(self, *inputs: Any) -> Any:
        return self.reference(*inputs, **self.keywords)

    def __str__(self) -> str:
        return self.name


@cache
def _built(name: str, lang: ModuleType, dtype: torch.dtype, engine: str | None) -> Any:
    # An op keeps the engine that ran when it was made: `engine` is read by tinsmith itself.
    return REGISTRY[name].build(lang, lang.f64 if dtype is torch.float64 else lang.f32)


def case(
    draw: Callable[[Draw], tuple[Any, ...]], reference: Callable[..., Any], **keywords: int
) -> Callable[[Callable[[ModuleType, Any], Any]], Callable[[ModuleType, Any], Any]]:
    """Return a decorator that adds a builder to the table under its own name."""

    def add(build: Callable[[ModuleType, Any], Any]) -> Callable[[ModuleType, Any], Any]:
        name = build.__name__
        assert name not in REGISTRY, name
        REGISTRY[name] = Case(name, build, draw, reference, keywords)
        return build

    return add
