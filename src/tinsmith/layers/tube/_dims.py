"""Dims of a Tube's tensors: a size, or what a size may be.

    4                a dim of this size
    AnyDim           a dim of any size; of inputs alone
    BatchDim         the first dim, over which one call runs a whole batch
    MatchDim("n")    a dim as large as every other MatchDim("n")

Values only: `_parts` checks which of them a registration may use; `_shapes` finds their sizes
in a call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

from ..._errors import ArgumentError, refusal

DimID: TypeAlias = str | int
"""What tells one MatchDim from another."""


@dataclass(frozen=True, repr=False)
class Anything:
    """A dim of an input that may have any size."""

    def __repr__(self) -> str:
        return "AnyDim"


@dataclass(frozen=True, repr=False)
class Batch:
    """The first dim: the kernels do not see it, one launch runs over it."""

    def __repr__(self) -> str:
        return "BatchDim"


@dataclass(frozen=True, repr=False)
class MatchDim:
    """A dim that has the same size wherever its id is used.

    Inputs determine the size; outputs and intermediate fields may use the id.

    Args:
        dim_id: a string or an integer.

    Raises:
        ArgumentError: the id is neither a string nor an integer.

    Example:
        >>> ts.MatchDim("n") == ts.MatchDim("n"), ts.MatchDim("n") == ts.MatchDim("m")
        (True, False)
    """

    dim_id: DimID

    def __post_init__(self) -> None:
        """Refuse what could not be distinguished, or not be written down."""
        if not isinstance(self.dim_id, str | int):
            remedy = 'Write a name or a number: `MatchDim("n")`.'
            raise ArgumentError(
                refusal("the id of a MatchDim is a string or an integer", [("got", repr(self.dim_id))], remedy)
            )

    def __repr__(self) -> str:
        return f"MatchDim({self.dim_id!r})"


AnyDim = Anything()
"""A dim of an input that may have any size."""
BatchDim = Batch()
"""The first dim: the kernels do not see it, one launch runs over it."""

DimOption: TypeAlias = int | Anything | Batch | MatchDim
"""Anything that a dim may be registered as."""


class DimensionCalculator(ABC):
    """Computes the dims of an output or an intermediate field at each call.

    A plain function with the same arguments works as well.

    Example:
        >>> class Doubled(ts.DimensionCalculator):
        ...     def calc_dimension(self, field_name, input_dimensions, input_tensor_shapes):
        ...         return (2 * input_tensor_shapes["x"][0],)
        >>> Doubled().calc_dimension("y", {"x": (ts.AnyDim,)}, {"x": (3,)})
        (6,)
    """

    @abstractmethod
    def calc_dimension(
        self,
        field_name: str,
        input_dimensions: dict[str, tuple[DimOption, ...]],
        input_tensor_shapes: dict[str, tuple[int, ...]],
    ) -> tuple[DimOption, ...]:
        """Compute the dims of one output or intermediate field in one call.

        Args:
            field_name: its name.
            input_dimensions: the dims that each input was registered with.
            input_tensor_shapes: the shape of each input in this call, including the batch.

        Returns:
            Sizes; MatchDims of inputs; BatchDim (or None) first if there is a batch.
        """
