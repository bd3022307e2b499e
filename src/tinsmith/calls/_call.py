"""Call: one call of an op in the form in which it runs, without the memory of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .._lazy import lazy
from ..spec import Numbers, Sizing
from ._buffers import Buffer

if TYPE_CHECKING:
    from ._core import Core
    from ._plan import Plan
    from .backward import ReverseAt


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an op.

    Attributes:
        shapes, dtypes: of the input arrays as the kernel sees them, without batch.
        scalars, templates, sizes: the other arguments by name; `sizes` are dims given by keyword.
        batch: size of the flat leading batch dimension, None without one.
        batched: input arrays that have it.
        is_apart: whether the samples of the batch run one by one.
    """

    core: Core
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    scalars: Mapping[str, Any]
    templates: Mapping[str, Any]
    sizes: Mapping[str, int]
    batch: int | None = None
    batched: frozenset[str] = frozenset()
    is_apart: bool = False

    @property
    def whole_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the input arrays, batch included."""
        if self.batch is None:
            return list(self.shapes)
        pairs = zip(self.core.signature.arrays, self.shapes, strict=True)
        return [(self.batch, *shape) if name in self.batched else shape for name, shape in pairs]

    @property
    def single(self) -> Call:
        """The call of one sample of the batch."""
        return Call(self.core, self.shapes, self.dtypes, self.scalars, self.templates, self.sizes)

    def with_batch(self, batch: int, batched: frozenset[str]) -> Call:
        """The same call over a batch."""
        # Not `dataclasses.replace`, which torch 2.6's compiler cannot read.
        return Call(
            self.core, self.shapes, self.dtypes, self.scalars, self.templates, self.sizes, batch=batch, batched=batched
        )

    def plan(self, device: torch.device) -> Plan:
        """The plan to run this call on `device`."""
        return self.core.plan(self, device)

    @lazy
    def values(self) -> dict[str, Any]:
        """What the call gives for dims: by integer scalar arguments, and by keyword."""
        return self.core.size_values(self)

    @lazy
    def sizing(self) -> Sizing:
        """Sizes of all arrays of calls like this one."""
        return self.core.sizing(self)

    @lazy
    def solution(self) -> Numbers | None:
        """What the symbols of its sizes stand for; None where they misfit, or are symbols of a tracer's."""
        return self.sizing.solve(self.whole_shapes, self.values)

    @property
    def numbers(self) -> Numbers:
        """The same. Raises where sizes misfit."""
        solution = self.solution
        if solution is None:
            self.core.solve_sizes(self)
            raise AssertionError(f"{self.core.signature.op}: {self.shapes} do not fit {self.core.signature.spec}")
        return solution

    @lazy
    def wanting(self) -> frozenset[str]:
        """Inputs that can have a gradient."""
        pairs = zip(self.core.signature.arrays, self.dtypes, strict=True)
        return frozenset(name for name, dtype in pairs if dtype.is_floating_point)

    @lazy
    def allocations(self) -> Sequence[Buffer]:
        """Outputs and scratch. Raises for sizes and dtypes that they cannot have."""
        return self.core.plan_buffers(self)

    @lazy
    def reverse(self) -> ReverseAt:
        """Where this call's gradient comes from."""
        return self.core.reverse.at(self.core.case(self))

    def select_active(self, needs: Sequence[bool]) -> frozenset[str]:
        """Names of the inputs that need a gradient, from one flag an input."""
        names = self.core.signature.arrays
        return frozenset([n for n, needed in zip(names, needs, strict=True) if needed]) & self.wanting

    def by_input(self, active: frozenset[str], gradients: Sequence[Any]) -> list[Any]:
        """Gradients of the active inputs, put in place of theirs among all inputs; None elsewhere."""
        remaining = iter(gradients)
        return [next(remaining) if name in active else None for name in self.core.signature.arrays]


class BackwardCall(NamedTuple):
    """A call whose gradients are asked for.

    Attributes:
        active: inputs whose gradients are wanted.
        saved: values that the call kept, by name.
        cotangents: those of outputs that have one, by name.
        state: what the forward pass noted of Python values and fields; None where it is not needed.
    """

    call: Call
    active: frozenset[str]
    saved: Mapping[str, Any]
    cotangents: Mapping[str, Any]
    state: torch.Tensor | None = None
