"""Proposal: finds inputs with nonzero derivatives, for a call whose derivatives are all 0.

A mask that no element passes, or a splat that covers no pixel, gives zeros even with a wrong gradient. Random numbers
of several scales, including the sizes of the call's dims, are tried with the interpreter, in which an index out of
bounds is harmless.
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
from ._function import Dangerous, Tensors, make_interpreted_function, pull_back

OPERATIONS = 100_000
"""The maximum number of interpreted operations in all trials together, which take a few seconds."""
_ELEMENTS = 20_000
"""If all inputs together have more elements, nothing is tried."""


@dataclass(frozen=True)
class Proposal:
    """Inputs with more nonzero derivatives.

    Attributes:
        code: statements that create them.
        moved: the names of inputs by which the derivatives are then not all 0.
    """

    code: str
    moved: tuple[str, ...]


@dataclass(frozen=True)
class _Recipe:
    """How random numbers are drawn: the name of torch's function, and a factor."""

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
    """Try random inputs; return those for which derivatives by the most of `zeros` are nonzero, or None if none are.

    Args:
        call: the op's call.
        values: its floating inputs.
        cotangents: the cotangents of its outputs.
        zeros: the names of inputs by which all derivatives are now 0.
        dtypes: the dtypes of the user's inputs, for the code.
    """
    if sum(one.numel() for one in values.values()) > _ELEMENTS:
        return None
    function = make_interpreted_function(call, Budget(OPERATIONS), is_strict=True)
    best: Proposal | None = None
    for recipes in _list_trials(values, zeros, _list_scales(values, cotangents)):
        drawn = _draw_values(recipes, values)
        try:
            gradient = pull_back(function, {**values, **drawn}, cotangents)
        except Dangerous:
            continue
        except (TooLong, NotCovered, KernelError):
            break
        moved = tuple(name for name in zeros if _moves(gradient[name]))
        if len(moved) > len(best.moved if best else ()):
            best = Proposal(_format_code(recipes, values, dtypes), moved)
        if len(moved) == len(zeros):
            break
    return best


def _moves(gradient: torch.Tensor) -> bool:
    return bool(gradient.any() and gradient.isfinite().all())


def _list_scales(values: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]) -> list[float]:
    """Return the factors to try: 1, the three largest sizes of dims (for inputs that are positions), 0.1 and 10."""
    sizes = sorted({size for one in (*values.values(), *outputs.values()) for size in one.shape if size > 1})
    return list(dict.fromkeys([1.0, *map(float, reversed(sizes[-3:])), 0.1, 10.0]))


def _list_trials(
    values: Mapping[str, torch.Tensor], zeros: Sequence[str], scales: Sequence[float]
) -> Iterator[dict[str, _Recipe]]:
    """Yield recipes by input: one recipe for all inputs in `zeros`, then for all inputs, then for each input alone."""
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
    """Draw inputs by their recipes: the same random numbers that the proposed code draws."""
    generator = torch.Generator().manual_seed(0)
    return {name: recipe.draw(values[name], generator) for name, recipe in recipes.items()}


def _format_code(
    recipes: Mapping[str, _Recipe], values: Mapping[str, torch.Tensor], dtypes: Mapping[str, torch.dtype]
) -> str:
    lines = [f"{name} = {recipe.code(values[name], dtypes[name])}" for name, recipe in recipes.items()]
    return "\n".join(["torch.manual_seed(0)", *lines])
