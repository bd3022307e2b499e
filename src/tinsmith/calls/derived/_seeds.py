"""Seeds: an op whose kernels draw random numbers takes a seed, so that its backward pass draws the same numbers again.

The seed is an additional, hidden input. It comes from torch's generator at each call, so `torch.manual_seed` reproduces
the op's numbers. Each sample of a batch has its own seed and runs separately.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.overrides import handle_torch_function

from ..._errors import KernelError, refusal
from ...frontend.lowering import LoweredKernel
from ...ir import Names, NotCovered
from ...passes import seed_random
from ...spec import Batch, Item, solve
from ...tracing import is_jit_traced
from .._binding import BoundArguments, is_symbolic
from .._core import Call, Core
from .._key import CallKey
from .._routine import Routine
from ._derived_core import DerivedCore, add_inputs

APART = 1 << 12
"""The offset between the seeds of an op's kernels. It is larger than the number of tasks of a kernel."""


class SeededCore(DerivedCore):
    """A core whose random numbers are determined by its last input, the seed."""

    is_seeded = True

    def __init__(self, base: Core) -> None:
        self.seed = Names({*base.signature.order, *base.signature.items}).fresh("random_seed")
        batch = base.signature.spec.batch_name
        super().__init__(base, add_inputs(base.signature, [Item(self.seed, (Batch(batch),) if batch else (), "i64")]))

    def base_call(self, call: Call) -> Call:
        """Return the call of the core without a seed."""
        return replace(
            call,
            core=self.base,
            shapes=call.shapes[:-1],
            dtypes=call.dtypes[:-1],
            batched=call.batched - {self.seed},
        )

    def key(self, call: Call) -> CallKey:
        # The key of one sample: if only the seeds have a batch, the base's call has no batch to take sizes from.
        base = self.base.key(self.base_call(call).single)
        made = self.signature.allocations
        return replace(
            base,
            signature=self.signature,
            shapes={**base.shapes, self.seed: ()},
            dtypes={**base.dtypes, self.seed: torch.int64},
            batched=call.batched | frozenset(made if call.batch is not None else ()),
            is_apart=True,
        )

    def kernels(self, key: CallKey) -> list[LoweredKernel]:
        lowered = self.base.kernels(replace(key, signature=self.base.signature, batched=key.batched - {self.seed}))
        return [
            LoweredKernel(seed_random(kernel, self.seed, number * APART), fields)
            for number, (kernel, fields) in enumerate(lowered)
        ]

    def build_forward(self, key: CallKey) -> Routine:
        try:
            return super().build_forward(key)
        except NotCovered as reason:
            words = (
                f"op `{self.signature.op}` cannot draw random numbers from torch's generator: "
                "it uses a construct that tinsmith cannot analyze"
            )
            remedy = (
                f"{reason.remedy}, or pass adjoint='engine': the engine then draws from its own generator, "
                "and the op has no gradient."
            )
            rows = [("construct", reason.construct), ("at", reason.place)]
            raise KernelError(refusal(words, rows, remedy)) from None

    def with_seed(self, bound: BoundArguments) -> BoundArguments:
        """Draw a seed for a call, or one for each sample of its batch. Return the arguments with the seed."""
        given = 0, 2**62, self._find_lead(bound)
        if any(map(is_symbolic, bound.values)):
            # A graph draws whenever it runs; `torch.randint` itself would draw once, while it is traced.
            seeds = handle_torch_function(torch.randint, bound.values, *given, device=self.device(bound.tensors))
        else:
            seeds = torch.randint(*given, device=self.device(bound.tensors))
        return bound.with_tensors((*bound.tensors, seeds))

    def _find_lead(self, bound: BoundArguments) -> tuple[int, ...]:
        """Return the sizes of the spec's `*b`."""
        signature = self.base.signature
        if signature.spec.batch_name is None:
            return ()
        for name, one in zip(signature.arrays, bound.tensors, strict=True):
            # A size of these stands for that of a later call, and must not be compared.
            if (is_symbolic(one) or is_jit_traced()) and signature.items[name].batch_name:
                count = len(signature.items[name].layout.plain)
                return one.shape[:-count] if count else one.shape
        shapes = {name: tuple(one.shape) for name, one in zip(signature.arrays, bound.tensors, strict=True)}
        values = signature.size_values(bound.scalars, bound.sizes)
        return tuple(solve(signature.spec, shapes, values, signature.op).batch)
