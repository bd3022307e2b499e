"""What every mode must give for a program: derivatives of its mirror, by torch's autograd."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from fuzz._mirror import Array, run_mirror
from fuzz._parts import COUNT, FACTOR, RANKS, TABLE

ROWS, COLUMNS = 4, 3
_SIZES = {"n": (ROWS,), "ni": (ROWS,), "nm": (ROWS, COLUMNS), "nv": (ROWS, 2), "nc": (ROWS, 3), "n22": (ROWS, 2, 2)}
SHAPES = {name: _SIZES.get(rank, ()) for name, rank in RANKS.items()}
_ELEMENT_DIMS = {"nv": 1, "nc": 1, "n22": 2}
INTEGERS = ("k", "e", "c")
HALVES = ("u",)

Tensors = dict[str, torch.Tensor]


@dataclass
class Sample:
    """Arguments of one call: floating and integer arrays by name, and the number `a`."""

    floats: Tensors
    integers: Tensors
    a: float

    def rounded(self, dtype: torch.dtype) -> Sample:
        """Return the same in numbers that `dtype` holds, or half precision for arrays that have it."""
        a = float(torch.tensor(self.a, dtype=dtype))
        return Sample(_rounded(self.floats, dtype), self.integers, a)

    def nudged(self, generator: torch.Generator) -> Sample:
        """Return the same with other last digits."""
        floats = {
            name: one * (1.0 + 1e-10 * (torch.rand(one.shape, generator=generator, dtype=one.dtype) - 0.5))
            for name, one in self.floats.items()
        }
        return Sample(floats, self.integers, self.a)


@dataclass
class Weights:
    """What makes a number of outputs, and a direction of inputs.

    Attributes:
        linear, square: of each floating output; `square` makes second derivatives of functions that are linear.
        chosen: outputs that have a cotangent in the modes `backward`, `*b` and `compile`.
        direction: of each floating input.
    """

    linear: Tensors
    square: Tensors
    chosen: tuple[str, ...]
    direction: Tensors

    def rounded(self, dtype: torch.dtype) -> Weights:
        """Return the same in numbers that `dtype` holds."""
        linear, square, direction = (_rounded(one, dtype) for one in (self.linear, self.square, self.direction))
        return Weights(linear, square, self.chosen, direction)

    def loss(self, outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Compute the scalar of `vmap(grad)` and `hessian`."""
        terms = [
            (self.linear[name] * outputs[name] + self.square[name] * outputs[name] ** 2).sum() for name in self.linear
        ]
        return torch.stack(terms).sum()


class Reference:
    """Derivatives of the mirror at one sample."""

    def __init__(self, program: Any, sample: Sample, weights: Weights) -> None:
        self._weights = weights
        self._leaves = {name: one.clone().requires_grad_() for name, one in sample.floats.items()}
        outputs = [*weights.linear, *(["c"] if re.search(r"\bc\[", program.spec.partition("->")[2]) else [])]
        scratch = [item.partition("[")[0].strip() for item in (program.scratch or "").split("],") if item]
        written = {
            name: _array(name, self._leaves.get(name, torch.zeros(SHAPES[name], dtype=_dtype(name))))
            for name in (*outputs, *scratch)
        }
        given = {name: _array(name, one) for name, one in (self._leaves | sample.integers).items()}
        constants = {"FACTOR": FACTOR, "COUNT": COUNT, "table": Array(torch.tensor(TABLE, dtype=torch.float64))}
        run_mirror(program.source, {**given, "a": sample.a, **written}, constants)
        self._outputs = {name: written[name].stacked().reshape(SHAPES[name]) for name in outputs}

    @property
    def outputs(self) -> Tensors:
        """Values."""
        return {name: one.detach() for name, one in self._outputs.items()}

    @cached_property
    def of_chosen(self) -> Tensors:
        """Gradients where only some outputs have a cotangent."""
        return self._pulled({name: self._weights.linear[name] for name in self._weights.chosen})

    @cached_property
    def of_all(self) -> Tensors:
        """Gradients where every floating output has one."""
        return self._pulled(self._weights.linear)

    @cached_property
    def of_loss(self) -> Tensors:
        """Gradients of the loss."""
        return {name: one.detach() for name, one in self._slopes.items()}

    @cached_property
    def curvature(self) -> Tensors:
        """The loss's Hessian times the direction."""
        along = sum((one * self._weights.direction[name]).sum() for name, one in self._slopes.items())
        return self._gradients(torch.as_tensor(along), create_graph=False)

    @cached_property
    def _slopes(self) -> Tensors:
        return self._gradients(self._weights.loss(self._outputs), create_graph=True)

    def _pulled(self, cotangents: Tensors) -> Tensors:
        total = sum((self._outputs[name] * one).sum() for name, one in cotangents.items())
        return self._gradients(torch.as_tensor(total), create_graph=False)

    def _gradients(self, total: torch.Tensor, *, create_graph: bool) -> Tensors:
        if not total.requires_grad:
            return {name: torch.zeros_like(one) for name, one in self._leaves.items()}
        options: dict[str, Any] = {"retain_graph": True, "create_graph": create_graph}
        gradients = torch.autograd.grad(
            total, list(self._leaves.values()), allow_unused=True, materialize_grads=True, **options
        )
        return dict(zip(self._leaves, gradients, strict=True))


def _rounded(tensors: Tensors, dtype: torch.dtype) -> Tensors:
    return {name: one.to(dtype_of(name, dtype)).double() for name, one in tensors.items()}


def dtype_of(name: str, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a floating array in a program whose others are of `dtype`."""
    return torch.float16 if name in HALVES else dtype


def _array(name: str, tensor: torch.Tensor) -> Array:
    return Array(tensor, _ELEMENT_DIMS.get(RANKS[name], 0))


def _dtype(name: str) -> torch.dtype:
    return torch.int32 if name in INTEGERS else torch.float64


def draw_sample(seed: int, floats: tuple[str, ...], integers: tuple[str, ...]) -> Sample:
    """Draw random arguments."""
    generator = torch.Generator().manual_seed(seed)
    values = {name: torch.rand(SHAPES[name], generator=generator, dtype=torch.float64) * 1.6 - 0.7 for name in floats}
    a = float(torch.rand((), generator=generator, dtype=torch.float64))
    rows = {
        "k": torch.randint(ROWS, (ROWS,), generator=generator).int(),
        "e": torch.randint(-7, 8, (ROWS,), generator=generator).int(),
    }
    return Sample(values, {name: rows[name] for name in integers}, a)


def draw_weights(seed: int, outputs: tuple[str, ...], floats: tuple[str, ...]) -> Weights:
    """Draw random weights; in half of the programs some outputs have no cotangent now and then.

    In the other half `*b` and `vmap(grad)` share kernels, and no gradient is generated for some outputs alone.
    """
    generator = torch.Generator().manual_seed(seed + 1_000_003)

    def drawn(name: str, low: float) -> torch.Tensor:
        return torch.rand(SHAPES[name], generator=generator, dtype=torch.float64) + low

    linear, square = {name: drawn(name, 0.2) for name in outputs}, {name: drawn(name, 0.1) for name in outputs}
    kept = torch.rand(len(outputs), generator=generator) < 0.6
    chosen = tuple(name for name, keep in zip(outputs, kept.tolist(), strict=True) if keep or seed // 4 % 2)
    return Weights(linear, square, chosen or outputs[:1], {name: drawn(name, -0.4) for name in floats})
