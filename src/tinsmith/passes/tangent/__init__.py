"""The tangent: forward mode, from kernel to kernel. `TANGENT` has its passes in order."""

from ._kernel import (
    Tangent,
    TangentOptions,
    UnneededOptions,
    differentiate,
    drop_idle_results,
    drop_unneeded,
    write_extremes,
)

__all__ = [
    "Tangent",
    "TangentOptions",
    "UnneededOptions",
    "differentiate",
    "drop_idle_results",
    "drop_unneeded",
    "write_extremes",
]
