"""Block cores: ops whose kernels let the threads of a block share memory and wait for each other.

Engines support blocks on GPUs only, where they run the user's kernel. On CPUs its blocks run one after the other
(`passes.run_blocks_in_order`). Gradients, tangents and batches are generated from that form everywhere.
"""

from __future__ import annotations

from ..._errors import KernelError, refusal
from ...ir import NotCovered
from .._core import Core, GradientSource
from .._key import CallKey
from .._routine import Routine
from .._signature import Signature
from ..backward import AutoReverse, SourceReverse, forward_routine


class BlockedCore(Core):
    """A core whose kernels run in blocks."""

    def __init__(self, signature: Signature, gradient: GradientSource) -> None:
        super().__init__(signature, gradient)
        reverse = gradient.reverse
        source = reverse.source if isinstance(reverse, AutoReverse) else reverse
        self._source = source if isinstance(source, SourceReverse) else SourceReverse(signature)

    def build_forward(self, key: CallKey) -> Routine:
        if key.device.type != "cpu" and all(stage.runs_as_written for stage in self.signature.firsts):
            return super().build_forward(key)
        at = self._source.specialize(key)
        try:
            return forward_routine(at.key, at.emit, at.forward, self._makes)
        except NotCovered as reason:
            raise self._make_refusal(reason, key) from None

    def _make_refusal(self, reason: NotCovered, key: CallKey) -> KernelError:
        op, engine = self.signature.op, self.signature.stages[0].engine.name
        device = "CPUs" if key.device.type == "cpu" else key.device.type
        words = (
            f"op `{op}` uses blocks of threads, which {engine} does not support on "
            f"{device}, and tinsmith cannot run them in order"
        )
        remedy = f"{reason.remedy}. Or start the engine on a GPU."
        return KernelError(refusal(words, [("because of", reason.construct), ("at", reason.place)], remedy))
