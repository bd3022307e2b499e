"""An index is a float."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def shift(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        y[i] = x[i + 0.5]


print(shift(torch.ones(4)))

# Message:
# tinsmith.KernelError: the kernel of op `shift` does not compile
#   kernel  shift at float_as_index.py:12
#   at      float_as_index.py:14: y[i] = x[i + 0.5]
#   taichi  indices must be integers, however 'f32' is provided as index 0
# Convert the index to an integer: `int(...)` rounds toward zero, `ti.floor(..., ti.i32)` rounds down. The engine's full report is this error's cause (`__cause__`).
# Fix:
# - x[i + 0.5]
# + x[int(i + 0.5)]
