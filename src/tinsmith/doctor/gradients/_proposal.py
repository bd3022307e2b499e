"""Proposal: inputs at which derivatives are not 0, for inputs at which they all are.

A mask that no element passes, or a splat that covers no pixel, gives zeros even with a wrong gradient. Random
numbers of several scales, the sizes of the call's dims among them, are tried with the interpreter, which is safe where
they lead outside an array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..._errors import KernelError
from ...ir import NotCovered
from ...operation.examination import Examination
from .._budget import Budget, TooLong
from ._function import Dangerous, Tensors, of_interpreter, pull_back

OPERATIONS = 100_000
"""Operations that are interpreted at most in all trials together, a few seconds of them."""
_ELEMENTS = 20_000
"""Elements of all inputs together beyond which nothing is tried."""


@dataclass(frozen=True)
class Proposal:
    """Inputs at which more derivatives are not 0.

    Attributes:
        code: statements that make them.
        moved: inputs by which derivatives are not 0 there.
    """

    code: str
    moved: tuple[str, ...]


@dataclass(frozen=True)
class _Recipe:
    """How random numbers are drawn: torch's function, and what it is multiplied with."""

    function: str
    factor: float

    def draw(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        draw: Any = getattr(torch, self.function)
        return (self.factor * draw(like.shape, generator=generator, dtype=torch.float32)).to(like)

    def code(self, like: torch.Tensor, dtype: torch.dtype) -> str:
        text = f"torch.{self.function}({', '.join(map(str, like.shape)) or '()'})"
        text = text if dtype == torch.float32 else f"{text}.to({dtype})"
        sign = {1.0: "", -1.0: "-"}.get(self.factor, f"{self.factor:g} * ")
        return f"{sign}{text}"


def propose(
    call: Examination,
    values: Mapping[str, torch.Tensor],
    cotangents: Mapping[str, torch.Tensor],
    zeros: Sequence[str],
    dtypes: Mapping[str, torch.dtype],
) -> Proposal | None:
    """The first of some random inputs at which derivatives by most of `zeros` are not 0; None where none is found.

    Args:
        call: the op's call.
        values: its floating inputs.
        cotangents: of its outputs.
        zeros: inputs by which all derivatives are 0 now.
        dtypes: of the inputs as the user has them, for the code.
    """
    if sum(one.numel() for one in values.values()) > _ELEMENTS:
        return None
    function = of_interpreter(call, Budget(OPERATIONS), is_strict=True)
    best: Proposal | None = None
    for recipes in _trials(values, zeros, _scales(values, cotangents)):
        drawn = _draw_values(recipes, values)
        try:
            gradient = pull_back(function, {**values, **drawn}, cotangents)
        except Dangerous:
            continue
        except (TooLong, NotCovered, KernelError):
            break
        moved = tuple(name for name in zeros if _moves(gradient[name]))
        if len(moved) > len(best.moved if best else ()):
            best = Proposal(_code(recipes, values, dtypes), moved)
        if len(moved) == len(zeros):
            break
    return best


def _moves(gradient: torch.Tensor) -> bool:
    return bool(gradient.any() and gradient.isfinite().all())


def _scales(values: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> list[float]:
    """Factors to try: 1, the greatest sizes of dims (for what is a position), and small and large ones."""
    sizes = sorted({size for one in (*values.values(), *outputs.values()) for size in one.shape if size > 1})
    return list(dict.fromkeys([1.0, *map(float, reversed(sizes[-3:])), 0.1, 10.0]))


def _trials(
    values: Mapping[str, torch.Tensor], zeros: Sequence[str], scales: Sequence[float]
) -> Iterator[dict[str, _Recipe]]:
    """What to draw for which inputs: one recipe for all that have no derivative, for one of them, for all inputs."""
    recipes = [_Recipe("rand", scale) for scale in scales]
    recipes += [_Recipe("rand", -1.0), *(_Recipe("randn", scale) for scale in scales)]
    for recipe in recipes:
        yield dict.fromkeys(zeros, recipe)
    if len(zeros) < len(values):
        for recipe in recipes:
            yield dict.fromkeys(values, recipe)
    if len(values) > 1:
        for name in values:
            yield from ({name: recipe} for recipe in recipes)


def _draw_values(recipes: Mapping[str, _Recipe], values: Mapping[str, torch.Tensor]) -> Tensors:
    """What the code of `_code` makes."""
    generator = torch.Generator().manual_seed(0)
    return {name: recipe.draw(values[name], generator) for name, recipe in recipes.items()}


def _code(recipes: Mapping[str, _Recipe], values: Mapping[str, torch.Tensor], dtypes: Mapping[str, torch.dtype]) -> str:
    lines = [f"{name} = {recipe.code(values[name], dtypes[name])}" for name, recipe in recipes.items()]
    return "\n".join(["torch.manual_seed(0)", *lines])
