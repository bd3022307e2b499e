"""Memory: an array as a list of numbers, one an element's entry, in the order in which they lie.

A tensor is taken apart once and put together once; in between, torch's autograd sees nothing but
scalars. The tensors that come back are connected with those that went in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from ..ir import nodes, types
from ._casts import Number, Precision


@dataclass
class Memory:
    """One array while a kernel runs.

    Attributes:
        array: what the kernel knows of it.
        shape: sizes that an index has, without the dims of an element.
        cells: the numbers.
        tied: by position, candidates of the greatest or least value that `atomic_max` and `atomic_min` found so far.
    """

    array: nodes.Array
    tensor: torch.Tensor
    shape: tuple[int, ...]
    cells: list[Number]
    tied: dict[int, Ties] = field(default_factory=dict)

    def back(self) -> torch.Tensor:
        """The array as a tensor again, with the shape and dtype of the one that was given."""
        if not self.cells:
            return self.tensor
        if types.is_float(self.array.type):
            return torch.stack(self.cells).reshape(self.tensor.shape)  # pyright: ignore[reportArgumentType]  # all floats
        return torch.tensor(self.cells, dtype=self.tensor.dtype).reshape(self.tensor.shape)

    def offset(self, entry: tuple[int, ...]) -> int:
        """Where the number `entry` of an element lies in it."""
        flat = 0
        for index, size in zip(entry, self.array.element, strict=True):
            flat = flat * size + index
        return flat


def remember(array: nodes.Array, tensor: torch.Tensor, precision: Precision) -> Memory:
    """Take a tensor apart. Its last dims are those of the array's elements."""
    shape = tuple(tensor.shape[: array.rank])
    if not types.is_float(array.type):
        return Memory(array, tensor, shape, tensor.detach().reshape(-1).tolist())
    tensor = tensor.to("cpu", precision.dtype(array.type))
    return Memory(array, tensor, shape, list(tensor.reshape(-1).unbind()))


@dataclass
class Ties:
    """Candidates of equal value for one element's maximum or minimum, and the number that stands for them."""

    operator: str
    candidates: list[torch.Tensor]
    stands: torch.Tensor


def with_candidate(memory: Memory, position: int, operator: str, value: torch.Tensor) -> torch.Tensor:
    """The greatest ("max") or least ("min") of an element and a value.

    All candidates that are equal share the derivative, as `torch.amax` over all of them does; taking
    them two by two would give the last one half, whatever came before.
    """
    old = memory.cells[position]
    assert isinstance(old, torch.Tensor)
    before, now = old.item(), value.item()
    if math.isnan(before) or math.isnan(now):
        return torch.maximum(old, value)
    if before != now:
        return value if (now > before) == (operator == "max") else old
    tied = memory.tied.get(position)
    if tied is None or tied.stands is not old or tied.operator != operator:
        tied = memory.tied[position] = Ties(operator, [old], old)
    tied.candidates.append(value)
    tied.stands = torch.stack(tied.candidates).amax(0)
    return tied.stands
