"""Sources of gradients: the engine, a hand-written kernel, or kernels generated from the source."""

from ._auto import AutoAt, AutoReverse
from ._by_hand import HandWritten
from ._engine_reverse import EngineReverse
from ._generated_layouts import forward_layout
from ._kernel_reverse import KernelReverse
from ._reverse import Reverse, ReverseAt, Wish
from ._source_adjoint import RACE, SourceAt, SourceReverse, refuse_race

__all__ = [
    "AutoAt",
    "AutoReverse",
    "EngineReverse",
    "HandWritten",
    "KernelReverse",
    "RACE",
    "Reverse",
    "ReverseAt",
    "SourceAt",
    "SourceReverse",
    "Wish",
    "forward_layout",
    "refuse_race",
]
