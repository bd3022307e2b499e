"""Functions of autograd that work on fields: what `torch.func` gets of them.

Fields hold one sample, so a Function on them is mapped over a batch by running once a sample; and what moves gradients
through fields does so backwards only, so none has a tangent.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from ..._errors import GradientError, refusal
from ._layer_field import LayerField


class OneSample(NamedTuple):
    """What a Function is given for one sample of a batch besides tensors, and the fields that its results come from."""

    arguments: tuple[Any, ...]
    results: Sequence[LayerField]


class FieldFunction(torch.autograd.Function):
    """A Function on fields. Arguments that are not tensors come first, then tensors; contexts have its `layer`."""

    one_sample: ClassVar[Callable[[tuple[Any, ...]], OneSample]]
    """Gives the arguments before the tensors as each sample of a batch gets them; each subclass has its own."""

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *given: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        count = next(place for place, one in enumerate(given) if isinstance(one, torch.Tensor))
        arguments, made = cls.one_sample(given[:count])
        tensors, dims, size = given[count:], in_dims[count:], info.batch_size
        if size == 0:
            empty = [tensors[0].new_empty((0, *one.memory_shape), dtype=one.memory_dtype) for one in made]
            return tuple(empty), (0,) * len(empty)
        rows = []
        for place in range(size):
            sample = [t if dim is None else t.select(dim, place) for t, dim in zip(tensors, dims, strict=True)]
            rows.append(cls.apply(*arguments, *sample))
        columns = tuple(torch.stack(column) for column in zip(*rows, strict=True))
        return columns, (0,) * len(columns)

    @classmethod
    @abstractmethod
    def describe_forward_mode(cls, ctx: Any) -> tuple[str, Sequence[tuple[str, ...]], str]:
        """Return why there is no forward mode: words, rows of a message, and what to do."""

    @classmethod
    def jvp(cls, ctx: Any, *_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        words, rows, remedy = cls.describe_forward_mode(ctx)
        raise GradientError(
            refusal(
                f"{ctx.layer} has no forward mode: {words}",
                rows,
                f"{remedy}, or use reverse mode (`torch.func.grad`, `vjp`, `jacrev`).",
            )
        )


def refuse_second(layer: str, why: str, instead: str) -> GradientError:
    """Build the error for a second derivative that does not exist; `instead` is the remedy."""
    words = f"{layer} has no second derivative: {why}"
    return GradientError(refusal(words, remedy=f"Leave out `create_graph=True`, or {instead}."))
