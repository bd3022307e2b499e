"""Where gradients come from: the engine, a kernel written by hand, or kernels generated from the source."""

from ._by_hand import HandWritten
from ._engine_reverse import EngineReverse
from ._pullback import KernelReverse
from ._reverse import Backward, Reverse, ReverseAt
from ._runner import Runner
from ._sourced import AutoAt, AutoReverse, SourceAt, SourceReverse

__all__ = [
    "AutoAt",
    "AutoReverse",
    "Backward",
    "EngineReverse",
    "HandWritten",
    "KernelReverse",
    "Reverse",
    "ReverseAt",
    "Runner",
    "SourceAt",
    "SourceReverse",
]
