"""Conversions: how a caller's tensors are converted before the kernels run, and the results afterwards.

A converted call has float32 instead of half precision, and one batch dimension instead of several. Torch's own
differentiable operations do both, so gradients are converted back. Most calls need neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..engines import HALVES
from ..tracing import reshape_result
from ._buffers import check_before_copy
from ._signature import Signature


class Conversion(NamedTuple):
    """How calls with one key are converted before and after they are run.

    Attributes:
        casts: for each input, whether it is cast from half precision to float32.
        lead: the number of dims that the spec's `*b` stands for.
        batched: the inputs that have these dims.
        halves: for each output, the half-precision dtype that it is cast back to, or None.
    """

    casts: tuple[bool, ...]
    lead: int
    batched: frozenset[str]
    halves: tuple[torch.dtype | None, ...]

    @property
    def is_identity(self) -> bool:
        """Whether kernels get the caller's tensors, and the caller gets the results, without conversion."""
        return not (any(self.casts) or any(self.halves) or self.lead > 1)

    def prepare(
        self,
        signature: Signature,
        batch: int | None,
        tensors: Sequence[torch.Tensor],
        outer: Sequence[tuple[int, ...]] = (),
    ) -> list[torch.Tensor]:
        """Convert a caller's tensors to what the kernels take.

        `outer` are, for each tensor, its leading dims that are not part of the call, as those of `vmap`.
        """
        ready = []
        names = signature.arrays
        for place, tensor in enumerate(tensors):
            check_before_copy(f"array `{names[place]}` of op `{signature.op}`", tensor)
            first = outer[place] if outer else ()
            tensor = tensor.float() if self.casts and self.casts[place] else tensor
            if self.lead > 1 and names[place] in self.batched:
                shape = tensor.shape[len(first) + self.lead :]
                assert batch is not None, "several batch dims become one"
                tensor = tensor.reshape(*first, batch, *shape)
            ready.append(tensor)
        return ready

    def finish(
        self, results: Sequence[torch.Tensor], lead: tuple[int, ...], outer: tuple[int, ...] = ()
    ) -> list[torch.Tensor]:
        """Convert results to the caller's dtypes and batch dims.

        `lead` are the sizes of the spec's `*b`; `outer` are leading dims that are not part of the call, as those of
        `vmap`.
        """
        done = []
        for place, result in enumerate(results):
            shape = (*outer, *lead, *result.shape[len(outer) + 1 :])
            shaped = reshape_result(result, shape) if len(lead) > 1 else result
            half = self.halves[place] if place < len(self.halves) else None
            done.append(shaped if half is None else shaped.to(half))
        return done


AS_IT_IS = Conversion((), 0, frozenset(), ())
"""The conversion that changes nothing."""


def compute_dtypes(dtypes: Sequence[torch.dtype]) -> tuple[torch.dtype, ...]:
    """Return the dtypes that inputs are computed in: float32 instead of half precision."""
    return tuple([torch.float32 if dtype in HALVES else dtype for dtype in dtypes])
